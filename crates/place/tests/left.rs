//! Paths that fail, stall or get slow are left, tried again, and come back; `k̂` tells of what others queue.

use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Go, Hardware, KindId, Outcome, PathId, Paths, Released, Request, Selector, Strategy,
    Why,
};
use pathcall_wire::Instant;

const MS: u64 = 1_000_000;

/// Over the processor (0), and over the accelerator (1), which is faster.
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
        Self { selector: Selector::new(&paths(), Strategy::Leo, Config::default()), now: Instant(MS) }
    }

    fn go(&mut self) -> Go {
        match self.selector.select(self.now, &Request { kind: KindId(0), address: 0, message: 0 }) {
            Decision::Go(go) => go,
            other => panic!("{other:?}"),
        }
    }

    fn done(&mut self, go: Go, intra_ns: u64) {
        self.now.0 += intra_ns;
        let total_ns = intra_ns + 5_000;
        assert!(self.selector.done(self.now, go.ticket, Outcome::Done { intra_ns: Some(intra_ns), total_ns }));
    }

    /// A request on a machine that is well, a tenth of a millisecond after the one before: its path.
    fn go_and_done(&mut self) -> PathId {
        let go = self.go();
        self.done(go, if go.path == ACC { 4_000 } else { 9_000 });
        self.now.0 += MS / 10;
        go.path
    }

    /// What a failed request does next.
    fn fails(&mut self, go: Go) -> Option<Released> {
        assert!(self.selector.done(self.now, go.ticket, Outcome::Failed));
        self.selector.poll(self.now)
    }
}

#[test]
fn a_request_that_failed_goes_elsewhere_and_its_path_is_probed_until_it_is_well() {
    let mut bench = Bench::new();
    let first = bench.go();
    assert_eq!((first.path, first.why), (ACC, Why::Best));
    let Some(Released::Go(again)) = bench.fails(first) else { panic!("it goes again") };
    assert_eq!((again.path, again.ticket), (CPU, first.ticket));
    bench.done(again, 9_000);
    let left = bench.now;
    // The second probe comes 2 ms after the first, the third 4 ms after that.
    for (probe, after_ms) in [1, 2, 4].into_iter().enumerate() {
        let mut waited = 0;
        let probe = loop {
            let go = bench.go();
            if go.why == Why::Probe {
                assert_eq!(bench.selector.state(ACC).probes, probe as u64 + 1);
                break go;
            }
            assert_eq!((go.path, go.why), (CPU, Why::Best));
            bench.done(go, 9_000);
            bench.now.0 += 91_000;
            waited += 100_000;
        };
        assert!((waited as i64 - (after_ms * MS) as i64).abs() < 300_000, "{waited} ns, not {after_ms} ms");
        let Some(Released::Go(go)) = bench.fails(probe) else { panic!("it goes again") };
        assert_eq!(go.path, CPU);
        bench.done(go, 9_000);
    }
    bench.now.0 = left.0 + 100 * MS;
    let probe = bench.go();
    assert_eq!((probe.path, probe.why), (ACC, Why::Probe));
    bench.done(probe, 4_000);
    assert_eq!(bench.selector.state(ACC).left_until, None);
    let go = bench.go();
    assert_eq!((go.path, go.why), (ACC, Why::Best));
}

#[test]
fn left_path_comes_back_by_an_answer_without_host_time() {
    let mut bench = Bench::new();
    let first = bench.go();
    let Some(Released::Go(again)) = bench.fails(first) else { panic!("it goes again") };
    assert_eq!((first.path, again.path), (ACC, CPU));
    bench.done(again, 9_000);
    let until = bench.selector.state(ACC).left_until.expect("it was left");
    bench.now = until;
    let probe = bench.go();
    assert_eq!((probe.path, probe.why), (ACC, Why::Probe));
    // Its host has measured nothing: that the answer came is enough.
    bench.now.0 += 9_000;
    assert!(bench.selector.done(bench.now, probe.ticket, Outcome::Done { intra_ns: None, total_ns: 9_000 }));
    assert_eq!(bench.selector.state(ACC).left_until, None);
    let go = bench.go();
    assert_eq!((go.path, go.why), (ACC, Why::Best));
}

#[test]
fn a_path_from_which_nothing_comes_is_left_until_something_does() {
    let mut bench = Bench::new();
    let stuck = bench.go();
    assert_eq!(stuck.path, ACC);
    bench.now.0 += 2 * MS;
    for _ in 0..50 {
        let go = bench.go();
        assert_eq!((go.path, go.why), (CPU, Why::Best), "none is sent after one that is stuck");
        bench.done(go, 9_000);
        bench.now.0 += MS;
    }
    assert_eq!(bench.selector.state(ACC).lefts, 1);
    // It comes at last; the path is slow, but alive, and is tried.
    bench.done(stuck, 60 * MS);
    bench.now.0 += 10 * MS;
    let probe = bench.go();
    assert_eq!((probe.path, probe.why), (ACC, Why::Probe));
    bench.done(probe, 4_000);
    assert_eq!(bench.go().path, ACC);
}

#[test]
fn a_path_whose_late_answers_come_after_all_is_taken_back_at_once() {
    let mut bench = Bench::new();
    let mut held_up = Vec::new();
    while held_up.len() < 16 {
        let go = bench.go();
        if go.path == ACC {
            held_up.push(go)
        } else {
            bench.done(go, 100)
        }
        bench.now.0 += 500;
    }
    // Eight milliseconds nothing comes, and then everything.
    bench.now.0 += 8 * MS;
    let other = bench.go();
    assert_eq!((other.path, bench.selector.state(ACC).lefts), (CPU, 1));
    for go in held_up {
        assert!(bench.selector.done(bench.now, go.ticket, Outcome::Done { intra_ns: Some(8 * MS), total_ns: 8 * MS }));
        assert_eq!(bench.selector.state(ACC).left_until, None, "something comes from it");
    }
    bench.done(other, 9_000);
    // That was one outlier, not sixteen.
    assert!(bench.selector.state(ACC).slowness <= 32, "{:?}", bench.selector.state(ACC));
    let mut well = 0;
    let until = bench.now.0 + 5 * MS;
    while bench.now.0 < until {
        let go = bench.go();
        well += u32::from(go.path == ACC && go.why == Why::Best);
        bench.done(go, if go.path == ACC { 4_000 } else { 9_000 });
    }
    assert!(well > 500, "{well}: {:?}", bench.selector.state(ACC));
}

#[test]
fn a_path_that_was_merely_late_for_long_is_found_well_soon() {
    let mut bench = Bench::new();
    let late_until = bench.now.0 + 2_000 * MS;
    let mut late = 0;
    while bench.now.0 < late_until {
        let go = bench.go();
        late += u32::from(go.path == ACC);
        bench.done(go, if go.path == ACC { 8 * MS } else { 9_000 });
        bench.now.0 += MS / 10;
    }
    assert!(late < 80, "{late} of its messages were late");
    let mut waited = 0;
    while bench.go_and_done() != ACC {
        waited += 1;
        assert!(waited < 400, "it is not tried for 40 ms: {:?}", bench.selector.state(ACC));
    }
}

#[test]
fn when_all_are_left_requests_still_go() {
    let mut bench = Bench::new();
    let mut go = bench.go();
    let mut tried = vec![go.path];
    loop {
        match bench.fails(go) {
            Some(Released::Go(again)) => go = again,
            Some(Released::GivenUp { ticket }) => {
                assert_eq!(ticket, go.ticket);
                assert_eq!(bench.selector.held(), 1, "what has to come after it waits");
                assert!(bench.selector.done(bench.now, ticket, Outcome::Abandoned));
                break;
            }
            None => panic!("it is lost"),
        }
        tried.push(go.path);
    }
    assert_eq!(tried.len(), usize::from(Config::default().attempts_max));
    assert!(tried.contains(&CPU) && tried.contains(&ACC));
    assert_eq!(bench.selector.held(), 0);
    assert_eq!(bench.go().why, Why::LeastBad);
}

#[test]
fn a_device_a_hundred_times_slower_is_left_and_comes_back() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        let go = bench.go();
        let slow = go.path == ACC;
        bench.done(go, if slow { 400_000 } else { 9_000 });
        bench.now.0 += MS / 100;
    }
    let mut sent = 0;
    for _ in 0..1_000 {
        let go = bench.go();
        sent += u32::from(go.path == ACC);
        bench.done(go, if go.path == ACC { 400_000 } else { 9_000 });
        bench.now.0 += MS / 100;
    }
    assert!(sent < 20, "{sent} of 1,000");
    bench.now.0 += 2_000 * MS;
    for _ in 0..20 {
        let go = bench.go();
        bench.done(go, if go.path == ACC { 4_000 } else { 9_000 });
        bench.now.0 += 2_000 * MS;
    }
    assert_eq!(bench.go().path, ACC, "{:?}", bench.selector.state(ACC));
}

#[test]
fn k_rises_above_the_noise_alone_and_no_higher_than_what_is_in_flight() {
    let paths = paths();
    let Some(acc) = paths.paths.get(1) else { panic!("two paths") };
    let mut bench = Bench::new();
    let mut goes = Vec::new();
    for _ in 0..3 {
        goes.push(bench.go());
        bench.now.0 += 1_000;
    }
    assert!(goes.iter().all(|go| go.path == ACC));
    let intra = acc.traverse_ns + acc.noise_ns;
    bench.done(goes[0], intra);
    assert_eq!(bench.selector.state(ACC).k, 0, "within the noise");
    bench.done(goes[2], 100 * acc.traverse_ns);
    assert_eq!(bench.selector.state(ACC).k, 1, "one is in flight");
    bench.done(goes[1], intra);
    assert_eq!(bench.selector.state(ACC).k, 0);
}
