//! Hosts with several accelerators: files, paths over each of them, and selection when some fail or stand still.

use std::collections::BTreeSet;

use pathcall_place::model::HostLink;
use pathcall_place::{
    Application, Config, Decision, DeviceRole, Dispatch, Hardware, KindId, PathId, Paths, Released, RequestOutcome,
    SelectionReason, SelectionRequest, SelectionStrategy, Selector,
};
use pathcall_wire::Instant;
use proptest::prelude::*;

/// Host with this number of accelerators, each at a link of its own.
pub fn host(accelerators: usize) -> Hardware {
    let (mut nodes, mut links) = (String::new(), String::new());
    for number in 0..accelerators {
        let latency = 300 + 100 * number;
        nodes += &format!("  gpu{number}: {{ role: acc }}\n");
        links += &format!(
            "  - {{ between: [gpu{number}, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: {latency} ns }}\n"
        );
    }
    let text = format!(
        "hardware: host\nnodes:\n  cpu: {{ role: cpu }}\n{nodes}  nic: {{ role: nic }}\nlinks:\n{links}  - {{ between: \
         [cpu, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: 500 ns }}\n"
    );
    Hardware::parse("host.yaml", &text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"))
}

/// Application with one request type, from the time of its task and the paths of its dataflows.
fn application(times: &str, dataflows: &[&str]) -> Application {
    let flow = |paths: &&str| {
        let trip = |path| format!("{{ path: {path}, bytes: 8 B, reply: 64 B, requester: work, responder: work }}");
        format!("      - trips: [{}]\n", paths.split(',').map(trip).collect::<Vec<_>>().join(", "))
    };
    let flows: String = dataflows.iter().map(flow).collect();
    let text = format!(
        "application: any\ntasks: {{ work: {{ {times} }} }}\nrequests:\n  ANY:\n    dependency: NONE\n    dataflows:\n{flows}"
    );
    Application::parse("any.yaml", &text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"))
}

fn names(paths: &Paths) -> Vec<&str> {
    paths.paths.iter().map(|path| &path.name[..]).collect()
}

/// Resource of a path's last node.
fn last_node(paths: &Paths, path: usize) -> &str {
    let node = |hop: &&pathcall_place::Hop| paths.resources[usize::from(hop.resource.0)].node.is_some();
    let hop = paths.paths[path].hops.iter().rfind(node).expect("a task");
    &paths.resources[usize::from(hop.resource.0)].name
}

#[test]
fn dataflow_over_acc_has_path_over_each_accelerator() {
    let given = application("cpu: 8 us, acc: 2 us", &["cpu-cpu", "cpu-acc"]);
    for (accelerators, expected) in
        [(1, &["cpu-cpu", "cpu-acc"][..]), (3, &["cpu-cpu", "cpu-acc", "cpu-acc1", "cpu-acc2"])]
    {
        let paths = Paths::of(&host(1), &host(accelerators), &given).expect("paths");
        assert_eq!(names(&paths), expected);
        for (at, path) in paths.paths.iter().enumerate().skip(1) {
            assert_eq!(path.role, DeviceRole::acc(at - 1).expect("an accelerator"));
            assert_eq!(last_node(&paths, at), format!("gpu{}", at - 1));
        }
        assert_eq!(Paths::of_host(&host(accelerators), &given).expect("paths").paths.len(), expected.len());
    }
}

#[test]
fn acc_is_same_accelerator_in_all_trips_of_dataflow() {
    let paths =
        Paths::of(&host(2), &host(2), &application("cpu: 8 us, acc: 2 us", &["acc-acc,cpu-acc"])).expect("paths");
    assert_eq!(names(&paths), ["acc-acc,cpu-acc", "acc-acc1,cpu-acc1", "acc1-acc,cpu-acc", "acc1-acc1,cpu-acc1"]);
    // The requester's part is the same for each, so a host alone has two.
    let both = application("cpu: 8 us, acc: 2 us", &["acc-acc"]);
    assert_eq!(names(&Paths::of_host(&host(2), &both).expect("paths")), ["acc-acc", "acc-acc1"]);
}

#[test]
fn dataflow_that_names_accelerator_replaces_the_one_for_it() {
    let given = application("cpu: 8 us, acc: 2 us", &["cpu-acc", "cpu-acc1"]);
    assert_eq!(names(&Paths::of(&host(1), &host(3), &given).expect("paths")), ["cpu-acc", "cpu-acc2", "cpu-acc1"]);
    let first = application("cpu: 8 us, acc: 2 us", &["cpu-cpu", "cpu-acc0"]);
    assert_eq!(names(&Paths::of(&host(1), &host(3), &first).expect("paths")), ["cpu-cpu", "cpu-acc0"]);
    let mistake = Paths::of(&host(1), &host(1), &given).expect_err("one accelerator").to_string();
    assert_eq!(
        mistake,
        "any.yaml:8:25: the path needs NA (nic to acc), but `host`, the responder, has no acc1; use another path or \
         another model"
    );
}

#[test]
fn accelerator_may_have_time_of_its_own() {
    let given = application("cpu: 8 us, acc: 2 us, acc1: 3 us", &["cpu-acc"]);
    let paths = Paths::of_host(&host(3), &given).expect("paths");
    let times: Vec<u64> =
        paths.paths.iter().map(|path| path.hops.iter().map(|hop| hop.delay_ns).max().unwrap()).collect();
    assert_eq!(times, [2_000, 3_000, 2_000]);
    // The time that is missing is to be profiled for each accelerator of the host.
    let mut given =
        application("cpu: 8 us, acc0: 2 us", &["cpu-acc"]).for_hosts(&host(1), &host(3)).expect("few paths");
    assert_eq!(given.unknown(), [(0, DeviceRole::Acc1), (0, DeviceRole::Acc2)]);
    given.set_compute(0, DeviceRole::Acc1, 5_000);
    let mistake = Paths::of(&host(1), &host(3), &given).expect_err("unknown").to_string();
    assert_eq!(
        mistake,
        "any.yaml:7:25: the compute time of `work` on acc2 is unknown; profile it, or set it in `tasks`"
    );
}

#[test]
fn file_has_at_most_seven_accelerators() {
    let ends = host(7);
    assert_eq!(ends.accelerators(), 7);
    let text = format!(
        "hardware: many\nnodes:\n  cpu: {{ role: cpu }}\n  nic: {{ role: nic }}\n{}links: []\n",
        (0..8).map(|number| format!("  gpu{number}: {{ role: acc }}\n")).collect::<String>()
    );
    let mistake = Hardware::parse("many.yaml", &text).expect_err("too many").to_string();
    assert_eq!(mistake, "many.yaml:12:17: a host has at most 7 nodes with role acc: remove one");
}

#[test]
fn route_names_accelerator_by_number() {
    let text = "hardware: two
nodes: { cpu: { role: cpu }, gpu: { role: acc }, dpu: { role: acc }, nic: { role: nic } }
links:
  - { between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [gpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [cpu, dpu], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [nic, dpu], bandwidth: 1 GB/s, messages: 1 M/s, latency: 100 ns }
routes:
  CA1: [cpu, dpu]
";
    let hardware = Hardware::parse("two.yaml", text).expect("a model");
    let names = |link, acc| {
        let route = hardware.route(link, acc).expect("a route").iter();
        route.map(|at| &hardware.nodes[*at].name[..]).collect::<Vec<_>>()
    };
    assert_eq!(names(HostLink::Ca, DeviceRole::Acc1), ["cpu", "dpu"]);
    assert_eq!(names(HostLink::Ca, DeviceRole::Acc), ["cpu", "nic", "gpu"]);
    assert_eq!(names(HostLink::Na, DeviceRole::Acc1), ["nic", "dpu"]);
    assert_eq!(names(HostLink::Cn, DeviceRole::Acc1), names(HostLink::Cn, DeviceRole::Acc));
    assert_eq!(hardware.route(HostLink::Ca, DeviceRole::Acc2), None);
    for (route, expected) in [
        ("CA1: [cpu, nic, gpu]", "two.yaml:9:3: CA1 goes from the cpu to the acc1; so must its route"),
        ("CA2: [cpu, nic, gpu]", "two.yaml:9:3: CA2 goes from the cpu to the acc2; so must its route"),
        ("CA7: [cpu, nic, gpu]", "two.yaml:9:3: invalid logical link `CA7`; write one of CN, NC, AN, NA, CA, AC"),
        ("CN1: [cpu, nic]", "two.yaml:9:3: invalid logical link `CN1`; write one of CN, NC, AN, NA, CA, AC"),
    ] {
        let mistake = Hardware::parse("two.yaml", &text.replace("CA1: [cpu, dpu]", route)).expect_err(route);
        assert_eq!(mistake.to_string(), expected);
    }
}

#[test]
fn too_many_paths_are_an_error_with_position() {
    let flow = |n: usize| {
        format!("      - {{ name: f{n}, trips: [{{ path: acc-acc, bytes: {n} B, reply: 64 B, responder: work }}] }}\n")
    };
    let kind = |kind: usize| {
        format!("  K{kind}:\n    dependency: NONE\n    dataflows:\n{}", (1..=60).map(flow).collect::<String>())
    };
    let text = format!(
        "application: many\ntasks: {{ work: {{ acc: 1 us }} }}\nrequests:\n{}",
        (0..2).map(kind).collect::<String>()
    );
    let given = Application::parse("many.yaml", &text).expect("an application");
    assert_eq!(given.for_hosts(&host(5), &host(6)).expect("few").requests[1].dataflows[31].name, "f2-acc-acc1");
    let mistake = Paths::of(&host(7), &host(7), &given).expect_err("5,880 paths").to_string();
    assert_eq!(mistake, "many.yaml:93:38: there are more than 4096 dataflows; leave some out");
}

proptest! {
    /// The number of paths is the product of the accelerators that `acc` stands for; each path is another one.
    #[test]
    fn paths_are_products_of_accelerators(
        (requesters, responders) in (1..=7_usize, 1..=7_usize),
        flows in prop::collection::btree_set(
            prop::collection::vec(prop::sample::select(vec!["cpu-cpu", "cpu-acc", "acc-cpu", "acc-acc"]), 1..4), 1..6
        ),
    ) {
        let flows: Vec<String> = flows.iter().map(|trips| trips.join(",")).collect();
        let texts: Vec<&str> = flows.iter().map(|flow| &flow[..]).collect();
        let given = application("cpu: 8 us, acc: 2 us", &texts);
        let expected: usize = flows.iter().map(|flow| {
            let uses = |side: usize| flow.split(',').any(|trip| trip.split('-').nth(side) == Some("acc"));
            (if uses(0) { requesters } else { 1 }) * if uses(1) { responders } else { 1 }
        }).sum();
        let paths = Paths::of(&host(requesters), &host(responders), &given).expect("paths");
        prop_assert_eq!(paths.paths.len(), expected);
        prop_assert_eq!(names(&paths).into_iter().collect::<BTreeSet<_>>().len(), expected);
        let hosts = given.for_hosts(&host(requesters), &host(responders)).expect("few paths");
        prop_assert_eq!(&Paths::of(&host(requesters), &host(responders), &hosts).expect("paths"), &paths);
        // An accelerator takes the place of the first one, and nothing else changes.
        let one = Paths::of(&host(1), &host(1), &given).expect("paths");
        prop_assert_eq!(names(&one), texts);
    }
}

/// Selector over a processor and accelerators, with a clock.
struct Bench {
    paths: Paths,
    selector: Selector,
    now: Instant,
}

impl Bench {
    fn new(accelerators: usize, strategy: SelectionStrategy) -> Self {
        let given = application("cpu: 100 us, acc: 10 us", &["cpu-cpu", "cpu-acc"]);
        let paths = Paths::of_host(&host(accelerators), &given).expect("paths");
        let selector = Selector::new(&paths, strategy, Config::default());
        Self { paths, selector, now: Instant(1_000_000) }
    }

    fn dispatches(&mut self) -> Vec<Dispatch> {
        let mut all = Vec::new();
        match self.selector.select(self.now, &SelectionRequest { kind: KindId(0), address: 0, message: 0 }) {
            Decision::Send(dispatch) => all.push(dispatch),
            Decision::Wait { .. } => {}
            Decision::Full => panic!("selector is full"),
        }
        all.extend(self.released());
        all
    }

    fn released(&mut self) -> Vec<Dispatch> {
        let mut all = Vec::new();
        while let Some(released) = self.selector.poll(self.now) {
            let Released::Send(dispatch) = released else { panic!("a request is given up") };
            all.push(dispatch);
        }
        all
    }

    fn role(&self, dispatch: &Dispatch) -> DeviceRole {
        self.paths.path(dispatch.path).role
    }

    fn ends(&mut self, dispatch: &Dispatch, outcome: RequestOutcome) -> Vec<Dispatch> {
        assert!(self.selector.done(self.now, dispatch.ticket, outcome));
        self.released()
    }

    fn answers(&mut self, dispatch: &Dispatch) -> Vec<Dispatch> {
        let time_ns = if self.role(dispatch) == DeviceRole::Cpu { 100_000 } else { 10_000 };
        self.ends(dispatch, RequestOutcome::Done { intra_ns: Some(time_ns), total_ns: time_ns })
    }
}

const STRATEGIES: [SelectionStrategy; 4] =
    [SelectionStrategy::Leo, SelectionStrategy::Late, SelectionStrategy::ShortestQueue, SelectionStrategy::RoundRobin];

#[test]
fn failing_accelerator_is_left_and_the_other_one_is_used() {
    for strategy in STRATEGIES {
        let mut bench = Bench::new(2, strategy);
        let (mut answered, mut by, mut open) = (0, [0; 3], Vec::new());
        for _ in 0..400 {
            bench.now.0 += 10_000;
            open.extend(bench.dispatches());
            // The first accelerator fails all messages.
            while let Some(dispatch) = open.pop() {
                let role = bench.role(&dispatch);
                by[role as usize] += 1;
                open.extend(match role {
                    DeviceRole::Acc => bench.ends(&dispatch, RequestOutcome::Failed),
                    _ => {
                        answered += 1;
                        bench.answers(&dispatch)
                    }
                });
            }
        }
        assert_eq!((answered, bench.selector.held()), (400, 0), "{}", strategy.name());
        assert!(by[1] <= 20 && by[2] >= 100, "{}: {by:?}", strategy.name());
        let other = bench.selector.state(PathId(2));
        assert_eq!((other.times_left, other.failed), (0, 0), "{}", strategy.name());
        assert!(bench.selector.state(PathId(1)).left_until.is_some(), "{}", strategy.name());
    }
}

#[test]
fn stalled_accelerator_is_left_and_the_other_one_is_used() {
    for strategy in [SelectionStrategy::Leo, SelectionStrategy::Late] {
        let mut bench = Bench::new(2, strategy);
        let (mut held, mut by, mut open) = (Vec::new(), [0; 3], Vec::new());
        for _ in 0..400 {
            bench.now.0 += 100_000;
            open.extend(bench.dispatches());
            // The first accelerator does not answer.
            while let Some(dispatch) = open.pop() {
                let role = bench.role(&dispatch);
                by[role as usize] += 1;
                match role {
                    DeviceRole::Acc => held.push(dispatch),
                    _ => open.extend(bench.answers(&dispatch)),
                }
            }
        }
        assert!(held.len() <= 20 && by[2] >= 300, "{}: {by:?}", strategy.name());
        assert_eq!(bench.selector.state(PathId(2)).times_left, 0, "{}", strategy.name());
        // At last the owner of the device gives its messages up.
        open.extend(held.iter().flat_map(|dispatch| bench.ends(dispatch, RequestOutcome::Failed)));
        while let Some(dispatch) = open.pop() {
            assert_ne!(bench.role(&dispatch), DeviceRole::Acc, "{}", strategy.name());
            open.extend(bench.answers(&dispatch));
        }
        assert_eq!(bench.selector.held(), 0, "{}", strategy.name());
    }
}

#[test]
fn last_attempt_is_on_processor_when_accelerators_fail_one_after_the_other() {
    for strategy in STRATEGIES {
        let mut bench = Bench::new(7, strategy);
        let mut dispatch = bench.dispatches().remove(0);
        let mut tried = BTreeSet::new();
        while bench.role(&dispatch) != DeviceRole::Cpu {
            assert!(tried.insert(bench.role(&dispatch)), "{}: again on the same", strategy.name());
            dispatch = bench.ends(&dispatch, RequestOutcome::Failed).remove(0);
        }
        if strategy != SelectionStrategy::RoundRobin {
            assert_eq!((tried.len(), dispatch.reason), (3, SelectionReason::LastAttempt), "{}", strategy.name());
        }
        assert!(bench.answers(&dispatch).is_empty() && bench.selector.held() == 0);
    }
}
