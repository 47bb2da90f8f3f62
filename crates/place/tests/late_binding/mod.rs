//! Late binding beside the other strategies: a processor and an accelerator in virtual time, whose real times may
//! differ from the model, change, or depend on each other.

mod several;
mod stations;

use std::collections::VecDeque;

use pathcall_place::{
    Application, Config, Decision, DeviceRole, Dispatch, Hardware, KindId, Paths, Released, RequestOutcome,
    SelectionRequest, SelectionStrategy, Selector,
};
use pathcall_wire::Instant;
use stations::{CASES, Case, Job, Stations, paths};

const US: u64 = 1_000;
/// Messages of a run.
const MESSAGES: usize = 20_000;
/// Share of the better single path that late binding has to reach.
const ENOUGH: f64 = 0.97;

/// Messages per second in a closed loop.
fn throughput<const DEVICES: usize>(case: &Case<DEVICES>, strategy: SelectionStrategy) -> f64 {
    closed_loop(case, strategy).0
}

/// Messages per second in a closed loop, and the messages of each device.
fn closed_loop<const DEVICES: usize>(case: &Case<DEVICES>, strategy: SelectionStrategy) -> (f64, [usize; DEVICES]) {
    let paths = paths(case);
    let mut selector = Selector::new(&paths, strategy, Config::default());
    let mut devices = Stations::new(case);
    let ask = |selector: &mut Selector, devices: &mut Stations<'_, DEVICES>, number: usize| {
        let request = SelectionRequest { kind: KindId(0), address: 0, message: number as u64 };
        match selector.select(Instant(devices.now as u64), &request) {
            Decision::Send(dispatch) => devices.send(&paths, dispatch),
            Decision::Wait { .. } => {}
            Decision::Full => panic!("selector is full"),
        }
    };
    (0..case.window).for_each(|number| ask(&mut selector, &mut devices, number));
    // The last messages would show how long one device works alone.
    for done in 0..MESSAGES - case.window {
        let Job { dispatch, sent, .. } = devices.next();
        let now = Instant(devices.now as u64);
        let total_ns = now.0 - sent;
        selector.done(now, dispatch.ticket, RequestOutcome::Done { intra_ns: Some(total_ns), total_ns });
        ask(&mut selector, &mut devices, done + case.window);
        while let Some(released) = selector.poll(now) {
            let Released::Send(dispatch) = released else { panic!("no path fails") };
            devices.send(&paths, dispatch);
        }
    }
    ((MESSAGES - case.window) as f64 * 1e9 / (devices.now - 1e6), devices.shares)
}

#[test]
fn late_binding_reaches_better_single_path() {
    let strategies =
        [SelectionStrategy::AllCpu, SelectionStrategy::AllAcc, SelectionStrategy::Leo, SelectionStrategy::Late];
    println!("{:<52} {:>9} {:>9} {:>9} {:>9}  leo   late", "messages/s", "all-cpu", "all-acc", "leo", "late");
    let mut slow = Vec::new();
    for case in CASES {
        let [cpu, acc, leo, late] = strategies.map(|strategy| throughput(&case, strategy));
        let better = cpu.max(acc);
        let line = format!(
            "{:<52} {cpu:>9.0} {acc:>9.0} {leo:>9.0} {late:>9.0} {:>5.2} {:>5.2}",
            case.name,
            leo / better,
            late / better
        );
        println!("{line}");
        slow.extend((late < ENOUGH * better).then_some(line));
    }
    assert!(slow.is_empty(), "slower than {ENOUGH} of the better single path:\n{}", slow.join("\n"));
}

/// Selector of late binding for a case, with a clock.
struct Bench {
    paths: Paths,
    selector: Selector,
    now: Instant,
    asked: u64,
}

impl Bench {
    fn new(case: &Case) -> Self {
        let paths = paths(case);
        let selector = Selector::new(&paths, SelectionStrategy::Late, Config::default());
        Self { paths, selector, now: Instant(1_000_000), asked: 0 }
    }

    fn ask(&mut self) -> Decision {
        self.asked += 1;
        self.selector.select(self.now, &SelectionRequest { kind: KindId(0), address: 0, message: self.asked })
    }

    /// Messages that a burst sends at once, and tickets of those that wait.
    fn burst(&mut self, count: usize) -> (Vec<Dispatch>, Vec<pathcall_place::Ticket>) {
        let (mut sent, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            match self.ask() {
                Decision::Send(dispatch) => sent.push(dispatch),
                Decision::Wait { ticket } => waiting.push(ticket),
                Decision::Full => panic!("selector is full"),
            }
            sent.extend(self.released());
        }
        (sent, waiting)
    }

    fn released(&mut self) -> Vec<Dispatch> {
        let mut all = Vec::new();
        while let Some(released) = self.selector.poll(self.now) {
            let Released::Send(dispatch) = released else { panic!("no message is given up") };
            all.push(dispatch);
        }
        all
    }

    fn is_acc(&self, dispatch: &Dispatch) -> bool {
        self.paths.path(dispatch.path).role == DeviceRole::Acc
    }

    fn on_acc(&self, sent: &[Dispatch]) -> usize {
        sent.iter().filter(|dispatch| self.is_acc(dispatch)).count()
    }
}

const EQUAL: Case = Case::new("equal", [100 * US, 100 * US]);

#[test]
fn burst_waits_in_queue_and_each_answer_releases_one() {
    let mut bench = Bench::new(&EQUAL);
    let (sent, waiting) = bench.burst(16);
    assert_eq!((sent.len(), bench.on_acc(&sent)), (8, 4), "one message computes and three wait at each device");
    assert_eq!(bench.selector.waiting(), 8);
    assert_eq!(waiting.iter().filter(|ticket| sent.iter().all(|dispatch| dispatch.ticket != **ticket)).count(), 8);
    bench.now.0 += 100 * US;
    let outcome = RequestOutcome::Done { intra_ns: Some(100 * US), total_ns: 100 * US };
    assert!(bench.selector.done(bench.now, sent[0].ticket, outcome));
    let next = bench.released();
    assert_eq!((next.len(), next[0].path), (1, sent[0].path), "the device that is free takes it");
}

#[test]
fn slow_device_takes_no_message_that_other_ends_sooner() {
    let mut bench = Bench::new(&Case::new("ten times slower", [100 * US, 1_000 * US]));
    let (few, _) = bench.burst(8);
    assert_eq!(bench.on_acc(&few), 0, "eight take the processor 800 us, and the accelerator needs 1,000 us for one");
    let (more, _) = bench.burst(8);
    assert_eq!(bench.on_acc(&more), 1, "the last of sixteen would wait longer than that");
}

#[test]
fn abandoned_waiting_message_is_not_sent() {
    let mut bench = Bench::new(&EQUAL);
    let (sent, waiting) = bench.burst(6);
    for ticket in &waiting {
        assert!(bench.selector.done(bench.now, *ticket, RequestOutcome::Abandoned));
    }
    assert_eq!((bench.selector.waiting(), bench.selector.held()), (0, sent.len() as u32));
    for dispatch in sent {
        assert!(bench.selector.done(bench.now, dispatch.ticket, RequestOutcome::Abandoned));
        assert!(bench.released().is_empty());
    }
    assert_eq!(bench.selector.held(), 0);
}

#[test]
fn failed_message_goes_before_waiting_ones_to_other_device() {
    let mut bench = Bench::new(&EQUAL);
    let (sent, _) = bench.burst(16);
    let failed = sent.iter().find(|dispatch| bench.is_acc(dispatch)).expect("one is on the accelerator").ticket;
    assert!(bench.selector.done(bench.now, failed, RequestOutcome::Failed));
    assert!(bench.released().is_empty(), "the accelerator is left, and the processor is full");
    let outcome = RequestOutcome::Done { intra_ns: Some(100 * US), total_ns: 100 * US };
    let on_cpu = sent.iter().find(|dispatch| !bench.is_acc(dispatch)).expect("one is on the processor").ticket;
    bench.now.0 += 100 * US;
    assert!(bench.selector.done(bench.now, on_cpu, outcome));
    let next = bench.released();
    assert_eq!((next.len(), next[0].ticket, bench.is_acc(&next[0])), (1, failed, false));
}

#[test]
fn waiting_messages_leave_device_that_stands_still() {
    let mut bench = Bench::new(&Case::new("ten times slower", [1_000 * US, 100 * US]));
    let (sent, waiting) = bench.burst(8);
    assert_eq!((bench.on_acc(&sent), sent.len()), (sent.len(), 4), "all are for the fast accelerator");
    assert_eq!(bench.selector.waiting() as usize, waiting.len());
    bench.now = bench.selector.poll_at().expect("messages wait for the accelerator");
    let released = bench.released();
    assert_eq!((released.len(), bench.on_acc(&released)), (4, 0), "the processor has room for them");
}

#[test]
fn short_message_is_sent_beside_a_stream_of_long_ones() {
    let application = "application: two
tasks: { long: { cpu: 100 us }, short: { cpu: 10 us } }
requests:
  LONG:
    dependency: NONE
    dataflows: [{ trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: long }] }]
  SHORT:
    dependency: NONE
    dataflows: [{ trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: short }] }]
";
    let host = "hardware: host
nodes: { cpu: { role: cpu, slots: 1 }, nic: { role: nic } }
links: [{ between: [cpu, nic], bandwidth: 12.8 GB/s, messages: 100 M/s, latency: 100 ns }]
";
    let host = Hardware::parse("host.yaml", host).expect("a host");
    let application = Application::parse("two.yaml", application).expect("an application");
    let paths = Paths::of(&host, &host, &application).expect("paths");
    let [long, short] = ["LONG", "SHORT"].map(|name| {
        let at = paths.kinds.iter().position(|kind| kind.name == name).expect("a type of the application");
        KindId(u16::try_from(at).expect("two"))
    });
    let mut selector = Selector::new(&paths, SelectionStrategy::Late, Config::default());
    let (mut now, mut at_device, mut message) = (1_000_000, VecDeque::new(), 0);
    let mut ask = |selector: &mut Selector, now, kind| {
        message += 1;
        selector.select(Instant(now), &SelectionRequest { kind, address: 0, message })
    };
    let mut short_one = None;
    for round in 0..100 {
        if round == 20 {
            let Decision::Wait { ticket } = ask(&mut selector, now, short) else { return };
            short_one = Some(ticket);
        }
        // Three long messages at any time.
        let decided: Vec<Decision> =
            (0..if round == 0 { 3 } else { 1 }).map(|_| ask(&mut selector, now, long)).collect();
        for decision in decided {
            if let Decision::Send(dispatch) = decision {
                at_device.push_back(dispatch);
            }
        }
        while let Some(Released::Send(dispatch)) = selector.poll(Instant(now)) {
            if Some(dispatch.ticket) == short_one {
                assert!(round <= 24, "the short message has waited for {} long ones", round - 20);
                return;
            }
            at_device.push_back(dispatch);
        }
        now += 100 * US;
        let ended: Dispatch = at_device.pop_front().expect("the device is never idle");
        let total_ns = 100 * US;
        selector.done(Instant(now), ended.ticket, RequestOutcome::Done { intra_ns: Some(total_ns), total_ns });
    }
    panic!("the short message is not sent");
}
