//! Random requests, outcomes and failures against a simple reference model: order is kept, every request is on at
//! most one path at a time, and every one ends.

use std::collections::HashMap;

use pathcall_place::{
    Application, Config, Decision, Dependency, Dispatch, Hardware, KindId, Paths, Released, RequestOutcome,
    SelectionReason, SelectionRequest, SelectionStrategy, Selector, Ticket,
};
use pathcall_wire::Instant;
use proptest::prelude::*;

/// One slot each, so that paths keep order, except that of the last dataflow.
const HARDWARE: &str = "
hardware: two
nodes: { cpu: { role: cpu }, acc: { role: acc }, nic: { role: nic } }
links:
  - { between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [acc, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
";
const WIDE: &str = "slots: 4,";
const APPLICATION: &str = "
application: orders
tasks: { work: { cpu: 3 us, acc: 1 us } }
requests:
  READ:
    dependency: ADDR
    access: read
    dataflows: &both
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }]
  WRITE: { dependency: ADDR, dataflows: *both }
  PUT:
    dependency: ADDR
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }]
  PART: { dependency: MSG, dataflows: *both }
  ANY: { dependency: NONE, dataflows: *both }
";

fn paths(wide: bool) -> Paths {
    let text =
        if wide { HARDWARE.replace("role: cpu }", &format!("{WIDE} role: cpu }}")) } else { HARDWARE.to_owned() };
    let hardware = Hardware::parse("two.yaml", &text).expect("a model");
    let application = Application::parse("orders.yaml", APPLICATION).expect("an application");
    Paths::of(&hardware, &hardware, &application).expect("paths")
}

/// Request of the reference model.
#[derive(Debug, Clone)]
struct Sent {
    kind: KindId,
    key: Option<(u8, u64)>,
    read: bool,
    /// Its dispatch, if it is in flight.
    on: Option<Dispatch>,
}

/// Reference model: all unfinished requests, by arrival.
#[derive(Default)]
struct Model {
    open: Vec<(Ticket, Sent)>,
    flying: HashMap<u16, u32>,
    ended: usize,
}

impl Model {
    fn goes(&mut self, paths: &Paths, dispatch: Dispatch) {
        let at = self.open.iter().position(|(ticket, _)| *ticket == dispatch.ticket).expect("a request that is open");
        let path = paths.path(dispatch.path);
        let sent = self.open[at].1.clone();
        assert_eq!(path.kind, sent.kind, "a path of its type");
        assert!(sent.on.is_none(), "on one path at a time");
        *self.flying.entry(dispatch.path.0).or_default() += 1;
        for (n, (_, other)) in self.open.iter().enumerate() {
            if other.key.is_none() || other.key != sent.key || n == at || (other.read && sent.read) {
                continue;
            }
            // Earlier requests must be in flight on the same resources, which keep order; later ones must not be in
            // flight.
            let Some(on) = other.on.filter(|_| n < at) else {
                assert!(n > at && other.on.is_none(), "{sent:?} passes {other:?}");
                continue;
            };
            let other_path = paths.path(on.path);
            let resources = |path: &pathcall_place::Path| path.hops.iter().map(|hop| hop.resource).collect::<Vec<_>>();
            assert!(path.fifo && other_path.fifo, "{sent:?} may pass {other:?}");
            assert_eq!(resources(path), resources(other_path), "{sent:?} may pass {other:?}");
        }
        self.open[at].1.on = Some(dispatch);
    }

    /// Ends a request that was given up; it must be the first of those that depend on it.
    fn gives_up(&mut self, selector: &mut Selector, ticket: Ticket) {
        let at = self.open.iter().position(|(known, _)| *known == ticket).expect("a request that is open");
        let sent = &self.open[at].1;
        assert!(sent.on.is_none(), "ended request is not sent");
        let mut ahead = self.open[..at].iter().map(|(_, other)| other);
        let ahead = ahead.find(|other| other.key.is_some() && other.key == sent.key && !(other.read && sent.read));
        assert!(ahead.is_none(), "{sent:?} is given up before {ahead:?}");
        assert!(selector.done(Instant(1), ticket, RequestOutcome::Abandoned), "request has ended");
        assert!(!selector.done(Instant(1), ticket, RequestOutcome::Abandoned), "answered once");
        self.remove(ticket);
    }

    fn lands(&mut self, at: usize) -> (Ticket, Dispatch) {
        let (ticket, sent) = &mut self.open[at];
        let dispatch = sent.on.take().expect("request is in flight");
        *self.flying.get_mut(&dispatch.path.0).expect("request was counted") -= 1;
        (*ticket, dispatch)
    }

    fn remove(&mut self, ticket: Ticket) {
        let at = self.open.iter().position(|(known, _)| *known == ticket).expect("a request that is open");
        self.open.remove(at);
        self.ended += 1;
    }
}

#[derive(Debug, Clone)]
enum Step {
    Select { kind: u16, key: u64 },
    Done { which: usize, intra_ns: Option<u64>, total_ns: u64 },
    Fail { which: usize },
    Abandon { which: usize },
    Pass { ns: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..5_u16, 0..3_u64).prop_map(|(kind, key)| Step::Select { kind, key }),
        5 => (any::<usize>(), proptest::option::of(0..200_000_u64), 0..200_000_u64)
            .prop_map(|(which, intra_ns, total_ns)| Step::Done { which, intra_ns, total_ns }),
        1 => any::<usize>().prop_map(|which| Step::Fail { which }),
        1 => any::<usize>().prop_map(|which| Step::Abandon { which }),
        2 => (0..5_000_000_u64).prop_map(|ns| Step::Pass { ns }),
    ];
    proptest::collection::vec(step, 1..200)
}

fn play(strategy: SelectionStrategy, wide: bool, steps: &[Step]) {
    let paths = paths(wide);
    let config = Config::default().in_flight_max(16).attempts_max(3);
    let mut selector = Selector::new(&paths, strategy, config);
    let mut model = Model::default();
    let mut now = Instant(1);
    let mut number = 0;
    for step in steps {
        match *step {
            Step::Select { kind, key } => {
                let kind = KindId(kind);
                let request = SelectionRequest { kind, address: key, message: key };
                let entry = &paths.kinds[usize::from(kind.0)];
                let key = match entry.dependency {
                    Dependency::None => None,
                    Dependency::Addr => Some((0, key)),
                    Dependency::Msg => Some((1, key)),
                };
                let read = entry.access == pathcall_place::model::AccessMode::Read;
                let sent = Sent { kind, key, read, on: None };
                number += 1;
                match selector.select(now, &request) {
                    Decision::Send(dispatch) => {
                        model.open.push((dispatch.ticket, sent));
                        model.goes(&paths, dispatch);
                    }
                    Decision::Wait { ticket } => model.open.push((ticket, sent)),
                    Decision::Full => {
                        assert_eq!(model.open.len(), 16);
                        number -= 1;
                    }
                }
            }
            Step::Pass { ns } => now = Instant(now.0 + ns),
            Step::Done { which, intra_ns, total_ns } => {
                end(&mut model, &mut selector, now, which, RequestOutcome::Done { intra_ns, total_ns });
            }
            Step::Fail { which } => end(&mut model, &mut selector, now, which, RequestOutcome::Failed),
            Step::Abandon { which } if !model.open.is_empty() => {
                let at = which % model.open.len();
                let ticket = model.open[at].0;
                if model.open[at].1.on.is_some() {
                    model.lands(at);
                }
                assert!(selector.done(now, ticket, RequestOutcome::Abandoned));
                assert!(!selector.done(now, ticket, RequestOutcome::Abandoned), "ticket ends once");
                model.remove(ticket);
            }
            Step::Abandon { .. } => {}
        }
        drain(&paths, &mut model, &mut selector, now);
        check(&paths, &model, &selector);
    }
    // Without failures every request ends.
    for _ in 0..1_000 {
        if model.open.is_empty() {
            break;
        }
        now = Instant(now.0 + 1_000);
        end(&mut model, &mut selector, now, 0, RequestOutcome::Done { intra_ns: Some(5_000), total_ns: 9_000 });
        drain(&paths, &mut model, &mut selector, now);
        check(&paths, &model, &selector);
    }
    assert_eq!((model.open.len(), model.ended), (0, number), "each request ends once");
}

/// Ends a request that is in flight.
fn end(model: &mut Model, selector: &mut Selector, now: Instant, which: usize, outcome: RequestOutcome) {
    let flying: Vec<usize> = (0..model.open.len()).filter(|at| model.open[*at].1.on.is_some()).collect();
    if flying.is_empty() {
        return;
    }
    let (ticket, _) = model.lands(flying[which % flying.len()]);
    assert!(selector.done(now, ticket, outcome));
    assert!(!selector.done(now, ticket, outcome), "message ends once");
    if outcome != RequestOutcome::Failed {
        model.remove(ticket);
    }
}

fn drain(paths: &Paths, model: &mut Model, selector: &mut Selector, now: Instant) {
    while let Some(released) = selector.poll(now) {
        match released {
            Released::Send(dispatch) => model.goes(paths, dispatch),
            Released::GivenUp { ticket } => model.gives_up(selector, ticket),
        }
    }
}

fn check(paths: &Paths, model: &Model, selector: &Selector) {
    assert_eq!(selector.held() as usize, model.open.len());
    for at in 0..paths.paths.len() as u16 {
        let state = selector.state(pathcall_place::PathId(at));
        assert_eq!(state.in_flight, model.flying.get(&at).copied().unwrap_or(0), "path {at}");
        assert!(state.k <= state.in_flight, "k̂ exceeds the messages in flight");
        assert!(state.slowness >= 16);
    }
    // No deadlock: waiting requests wait for one in flight.
    assert!(model.open.is_empty() || model.open.iter().any(|(_, sent)| sent.on.is_some()));
}

proptest! {
    #[test]
    fn order_is_kept(steps in steps(), which in 0..SelectionStrategy::NAMES.len(), wide: bool) {
        play(SelectionStrategy::NAMES[which].1, wide, &steps);
    }
}

#[test]
fn write_follows_only_on_ordered_path() {
    for wide in [false, true] {
        let paths = paths(wide);
        let mut selector = Selector::new(&paths, SelectionStrategy::AllCpu, Config::default());
        let write = SelectionRequest { kind: paths.kind("WRITE").expect("a type"), address: 7, message: 0 };
        let Decision::Send(first) = selector.select(Instant(1), &write) else { panic!("no earlier request") };
        match selector.select(Instant(2), &write) {
            Decision::Send(second) => {
                assert_eq!((second.path, second.reason, wide), (first.path, SelectionReason::Follows, false))
            }
            Decision::Wait { .. } => assert!(wide),
            Decision::Full => panic!("there is room"),
        }
    }
}

#[test]
fn dependent_requests_wait_for_end_of_given_up_request() {
    let paths = paths(true);
    let mut selector = Selector::new(&paths, SelectionStrategy::Leo, Config::default().attempts_max(2));
    let of = |name: &str, address| SelectionRequest { kind: paths.kind(name).expect("a type"), address, message: 0 };
    let now = Instant(1);
    let Decision::Send(first) = selector.select(now, &of("PUT", 7)) else { panic!("no earlier request") };
    assert!(selector.done(now, first.ticket, RequestOutcome::Failed));
    let Some(Released::Send(again)) = selector.poll(now) else { panic!("request is sent again") };
    assert_eq!(again.ticket, first.ticket);
    let Decision::Wait { ticket: second } = selector.select(now, &of("READ", 7)) else { panic!("an earlier write") };
    assert!(selector.done(now, first.ticket, RequestOutcome::Failed));
    assert_eq!(selector.poll(now), Some(Released::GivenUp { ticket: first.ticket }));
    assert_eq!(selector.poll(now), None, "request without a path is executed by the processor");
    assert!(matches!(selector.select(now, &of("READ", 7)), Decision::Wait { .. }));
    assert!(matches!(selector.select(now, &of("READ", 8)), Decision::Send(_)), "request of another address is sent");
    assert!(selector.done(now, first.ticket, RequestOutcome::Done { intra_ns: None, total_ns: 1 }));
    assert!(!selector.done(now, first.ticket, RequestOutcome::Abandoned), "request ends once");
    let Some(Released::Send(dispatch)) = selector.poll(now) else { panic!("request has ended") };
    assert_eq!(dispatch.ticket, second);
}

#[test]
fn request_does_not_follow_possibly_lost_one() {
    let paths = paths(false);
    let mut selector = Selector::new(&paths, SelectionStrategy::AllCpu, Config::default());
    let of = |name: &str, address| SelectionRequest { kind: paths.kind(name).expect("a type"), address, message: 0 };
    let dispatch = |decision| if let Decision::Send(dispatch) = decision { Some(dispatch) } else { None };
    let other = dispatch(selector.select(Instant(1), &of("PUT", 7))).expect("no earlier request");
    let first = dispatch(selector.select(Instant(2), &of("WRITE", 8))).expect("no earlier request before this one");
    // They share a connection, whose failures are reported one after the other.
    assert!(selector.done(Instant(3), other.ticket, RequestOutcome::Failed));
    let Decision::Wait { ticket: second } = selector.select(Instant(4), &of("WRITE", 8)) else {
        panic!("request may overtake the earlier one")
    };
    let early = selector.poll(Instant(4)).expect("other request again");
    assert!(matches!(early, Released::Send(dispatch) if dispatch.ticket == other.ticket), "{early:?}");
    assert!(selector.done(Instant(5), first.ticket, RequestOutcome::Failed));
    for ticket in [first.ticket, second] {
        let Some(Released::Send(dispatch)) = selector.poll(Instant(5)) else { panic!("requests are sent in order") };
        assert_eq!(dispatch.ticket, ticket);
        assert!(selector.done(Instant(6), ticket, RequestOutcome::Done { intra_ns: None, total_ns: 1 }));
    }
}
