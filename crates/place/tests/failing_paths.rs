//! Failing, stalled and slow paths: the selector leaves and probes them, and uses them again; `k̂` estimates others'
//! queues.

use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Dispatch, Hardware, KindId, PathId, Paths, Released, RequestOutcome,
    SelectionReason, SelectionRequest, SelectionStrategy, Selector,
};
use pathcall_wire::Instant;

const MS: u64 = 1_000_000;

/// Paths over the processor (0), and over the accelerator (1), which is faster.
fn paths() -> Paths {
    let text = "
application: two
tasks: { work: { cpu: 8 us, acc: 2 us } }
requests:
  ANY:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }]
";
    let hardware = Hardware::preset(Preset::OffPath);
    Paths::of(&hardware, &hardware, &Application::parse("two.yaml", text).expect("an application")).expect("paths")
}

const CPU: PathId = PathId(0);
const ACC: PathId = PathId(1);

struct Bench {
    selector: Selector,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { selector: Selector::new(&paths(), SelectionStrategy::Leo, Config::default()), now: Instant(MS) }
    }

    fn dispatch(&mut self) -> Dispatch {
        match self.selector.select(self.now, &SelectionRequest { kind: KindId(0), address: 0, message: 0 }) {
            Decision::Send(dispatch) => dispatch,
            other => panic!("{other:?}"),
        }
    }

    fn done(&mut self, dispatch: Dispatch, intra_ns: u64) {
        self.now.0 += intra_ns;
        let total_ns = intra_ns + 5_000;
        assert!(self.selector.done(
            self.now,
            dispatch.ticket,
            RequestOutcome::Done { intra_ns: Some(intra_ns), total_ns }
        ));
    }

    /// Sends a request on a healthy machine, a tenth of a millisecond after the previous one; returns its path.
    fn go_and_done(&mut self) -> PathId {
        let dispatch = self.dispatch();
        self.done(dispatch, if dispatch.path == ACC { 4_000 } else { 9_000 });
        self.now.0 += MS / 10;
        dispatch.path
    }

    /// Fails a request; returns the next release.
    fn fails(&mut self, dispatch: Dispatch) -> Option<Released> {
        assert!(self.selector.done(self.now, dispatch.ticket, RequestOutcome::Failed));
        self.selector.poll(self.now)
    }
}

#[test]
fn failed_path_is_left_and_probed_until_it_recovers() {
    let mut bench = Bench::new();
    let first = bench.dispatch();
    assert_eq!((first.path, first.reason), (ACC, SelectionReason::Best));
    let Some(Released::Send(again)) = bench.fails(first) else { panic!("request is sent again") };
    assert_eq!((again.path, again.ticket), (CPU, first.ticket));
    bench.done(again, 9_000);
    let left = bench.now;
    // The second probe is sent 2 ms after the first, the third 4 ms after that.
    for (probe, after_ms) in [1, 2, 4].into_iter().enumerate() {
        let mut waited = 0;
        let probe = loop {
            let dispatch = bench.dispatch();
            if dispatch.reason == SelectionReason::Probe {
                assert_eq!(bench.selector.state(ACC).probes, probe as u64 + 1);
                break dispatch;
            }
            assert_eq!((dispatch.path, dispatch.reason), (CPU, SelectionReason::Best));
            bench.done(dispatch, 9_000);
            bench.now.0 += 91_000;
            waited += 100_000;
        };
        assert!((waited as i64 - (after_ms * MS) as i64).abs() < 300_000, "{waited} ns, not {after_ms} ms");
        let Some(Released::Send(dispatch)) = bench.fails(probe) else { panic!("request is sent again") };
        assert_eq!(dispatch.path, CPU);
        bench.done(dispatch, 9_000);
    }
    bench.now.0 = left.0 + 100 * MS;
    let probe = bench.dispatch();
    assert_eq!((probe.path, probe.reason), (ACC, SelectionReason::Probe));
    bench.done(probe, 4_000);
    assert_eq!(bench.selector.state(ACC).left_until, None);
    let dispatch = bench.dispatch();
    assert_eq!((dispatch.path, dispatch.reason), (ACC, SelectionReason::Best));
}

#[test]
fn failed_request_is_not_sent_as_a_probe() {
    let mut bench = Bench::new();
    let first = bench.dispatch();
    // It fails so late that the path it was on is to be probed.
    let second = bench.dispatch();
    assert_eq!([first.path, second.path], [ACC, ACC]);
    let Some(Released::Send(again)) = bench.fails(first) else { panic!("request is sent again") };
    assert_eq!(again.path, CPU);
    bench.done(again, 9_000);
    bench.now.0 += 100 * MS;
    let Some(Released::Send(again)) = bench.fails(second) else { panic!("request is sent again") };
    assert_eq!((again.path, again.reason), (CPU, SelectionReason::Best));
    assert_eq!(bench.dispatch().reason, SelectionReason::Probe, "a new request is the probe");
}

#[test]
fn left_path_recovers_by_answer_without_host_time() {
    let mut bench = Bench::new();
    let first = bench.dispatch();
    let Some(Released::Send(again)) = bench.fails(first) else { panic!("request is sent again") };
    assert_eq!((first.path, again.path), (ACC, CPU));
    bench.done(again, 9_000);
    let until = bench.selector.state(ACC).left_until.expect("path was left");
    bench.now = until;
    let probe = bench.dispatch();
    assert_eq!((probe.path, probe.reason), (ACC, SelectionReason::Probe));
    // The host has measured no time; the answer is sufficient.
    bench.now.0 += 9_000;
    assert!(bench.selector.done(bench.now, probe.ticket, RequestOutcome::Done { intra_ns: None, total_ns: 9_000 }));
    assert_eq!(bench.selector.state(ACC).left_until, None);
    let dispatch = bench.dispatch();
    assert_eq!((dispatch.path, dispatch.reason), (ACC, SelectionReason::Best));
}

#[test]
fn stalled_path_is_left_until_message_ends() {
    let mut bench = Bench::new();
    let stuck = bench.dispatch();
    assert_eq!(stuck.path, ACC);
    bench.now.0 += 2 * MS;
    for _ in 0..50 {
        let dispatch = bench.dispatch();
        assert_eq!(
            (dispatch.path, dispatch.reason),
            (CPU, SelectionReason::Best),
            "no request is sent after a stuck request"
        );
        bench.done(dispatch, 9_000);
        bench.now.0 += MS;
    }
    assert_eq!(bench.selector.state(ACC).times_left, 1);
    // The answer arrives at last: the path is slow but works, so it is probed.
    bench.done(stuck, 60 * MS);
    bench.now.0 += 10 * MS;
    let probe = bench.dispatch();
    assert_eq!((probe.path, probe.reason), (ACC, SelectionReason::Probe));
    bench.done(probe, 4_000);
    assert_eq!(bench.dispatch().path, ACC);
}

#[test]
fn stalled_path_is_used_again_after_late_answers() {
    let mut bench = Bench::new();
    let mut held_up = Vec::new();
    while held_up.len() < 16 {
        let dispatch = bench.dispatch();
        if dispatch.path == ACC {
            held_up.push(dispatch)
        } else {
            bench.done(dispatch, 100)
        }
        bench.now.0 += 500;
    }
    // No message ends for eight milliseconds, and then all do.
    bench.now.0 += 8 * MS;
    let other = bench.dispatch();
    assert_eq!((other.path, bench.selector.state(ACC).times_left), (CPU, 1));
    for dispatch in held_up {
        assert!(bench.selector.done(
            bench.now,
            dispatch.ticket,
            RequestOutcome::Done { intra_ns: Some(8 * MS), total_ns: 8 * MS }
        ));
        assert_eq!(bench.selector.state(ACC).left_until, None, "path answers again");
    }
    bench.done(other, 9_000);
    // This counts as one outlier, not as sixteen.
    assert!(bench.selector.state(ACC).slowness <= 32, "{:?}", bench.selector.state(ACC));
    let mut well = 0;
    let until = bench.now.0 + 5 * MS;
    while bench.now.0 < until {
        let dispatch = bench.dispatch();
        well += u32::from(dispatch.path == ACC && dispatch.reason == SelectionReason::Best);
        bench.done(dispatch, if dispatch.path == ACC { 4_000 } else { 9_000 });
    }
    assert!(well > 500, "{well}: {:?}", bench.selector.state(ACC));
}

#[test]
fn path_that_stalls_again_and_again_is_left_for_longer() {
    const STALL: u64 = 60 * MS;
    let mut bench = Bench::new();
    let (mut sent, mut stalls) = (0_u64, 0_u32);
    let mut held: Vec<(u64, Dispatch)> = Vec::new();
    while bench.now.0 < 4_000 * MS {
        if held.first().is_some_and(|(at, _)| bench.now.0 >= at + STALL) {
            for (at, dispatch) in std::mem::take(&mut held) {
                let took = bench.now.0 - at;
                let outcome = RequestOutcome::Done { intra_ns: Some(took), total_ns: took };
                assert!(bench.selector.done(bench.now, dispatch.ticket, outcome));
            }
        }
        let dispatch = bench.dispatch();
        sent += u64::from(dispatch.path == ACC);
        let stalls_now = dispatch.path == ACC && held.is_empty() && sent % 50 == 0;
        stalls += u32::from(stalls_now);
        if stalls_now || dispatch.path == ACC && !held.is_empty() {
            held.push((bench.now.0, dispatch));
            bench.now.0 += 10_000;
        } else {
            bench.done(dispatch, if dispatch.path == ACC { 4_000 } else { 9_000 });
        }
    }
    // Sixty if it were used again at once.
    assert!((5..=16).contains(&stalls), "{stalls} stalls: {:?}", bench.selector.state(ACC));
}

#[test]
fn recovery_of_late_path_is_detected_soon() {
    let mut bench = Bench::new();
    let late_until = bench.now.0 + 2_000 * MS;
    let mut late = 0;
    while bench.now.0 < late_until {
        let dispatch = bench.dispatch();
        late += u32::from(dispatch.path == ACC);
        bench.done(dispatch, if dispatch.path == ACC { 8 * MS } else { 9_000 });
        bench.now.0 += MS / 10;
    }
    assert!(late < 80, "{late} of its messages were late");
    let mut waited = 0;
    while bench.go_and_done() != ACC {
        waited += 1;
        assert!(waited < 400, "path is not probed for 40 ms: {:?}", bench.selector.state(ACC));
    }
}

#[test]
fn requests_are_sent_if_all_paths_are_left() {
    let mut bench = Bench::new();
    let mut dispatch = bench.dispatch();
    let mut tried = vec![dispatch.path];
    loop {
        match bench.fails(dispatch) {
            Some(Released::Send(again)) => dispatch = again,
            Some(Released::GivenUp { ticket }) => {
                assert_eq!(ticket, dispatch.ticket);
                assert_eq!(bench.selector.held(), 1, "later request of the same order waits");
                assert!(bench.selector.done(bench.now, ticket, RequestOutcome::Abandoned));
                break;
            }
            None => panic!("message is lost"),
        }
        tried.push(dispatch.path);
    }
    assert_eq!(tried.len(), usize::from(Config::default().attempts_max));
    assert!(tried.contains(&CPU) && tried.contains(&ACC));
    assert_eq!(bench.selector.held(), 0);
    assert_eq!(bench.dispatch().reason, SelectionReason::LeastBad);
}

#[test]
fn hundredfold_slower_device_is_left_and_recovers() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        let dispatch = bench.dispatch();
        let slow = dispatch.path == ACC;
        bench.done(dispatch, if slow { 400_000 } else { 9_000 });
        bench.now.0 += MS / 100;
    }
    let mut sent = 0;
    for _ in 0..1_000 {
        let dispatch = bench.dispatch();
        sent += u32::from(dispatch.path == ACC);
        bench.done(dispatch, if dispatch.path == ACC { 400_000 } else { 9_000 });
        bench.now.0 += MS / 100;
    }
    assert!(sent < 20, "{sent} of 1,000");
    bench.now.0 += 2_000 * MS;
    for _ in 0..20 {
        let dispatch = bench.dispatch();
        bench.done(dispatch, if dispatch.path == ACC { 4_000 } else { 9_000 });
        bench.now.0 += 2_000 * MS;
    }
    assert_eq!(bench.dispatch().path, ACC, "{:?}", bench.selector.state(ACC));
}

#[test]
fn queue_estimate_ignores_noise_and_is_bounded_by_in_flight() {
    let paths = paths();
    let Some(acc) = paths.paths.get(1) else { panic!("two paths") };
    let mut bench = Bench::new();
    let mut goes = Vec::new();
    for _ in 0..3 {
        goes.push(bench.dispatch());
        bench.now.0 += 1_000;
    }
    assert!(goes.iter().all(|dispatch| dispatch.path == ACC));
    let intra = acc.traverse_ns + acc.noise_ns;
    bench.done(goes[0], intra);
    assert_eq!(bench.selector.state(ACC).k, 0, "within the noise");
    bench.done(goes[2], 100 * acc.traverse_ns);
    assert_eq!(bench.selector.state(ACC).k, 1, "one request is in flight");
    bench.done(goes[1], intra);
    assert_eq!(bench.selector.state(ACC).k, 0);
}
