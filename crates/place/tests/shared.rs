//! Paths with a shared resource: a message does not wait there for work that is done before it arrives.

use pathcall_place::model::Preset;
use pathcall_place::{
    Application, Config, Decision, Hardware, KindId, Paths, SelectionRequest, SelectionStrategy, Selector,
};
use pathcall_wire::Instant;

const APPLICATION: &str = "application: store
tasks:
  look-up: { cpu: 50 us, acc: 50 us }
  read: { cpu: 5 us }
requests:
  GET:
    dependency: NONE
    dataflows:
      - trips:
          - { path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: look-up }
          - { path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: read }
      - trips:
          - { path: cpu-acc, bytes: 64 B, reply: 64 B, responder: look-up }
          - { path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: read }
";

const PACKED: &str = "application: files
tasks:
  pack: { cpu: 50 us, acc: 60 us }
  unpack: { cpu: 50 us }
requests:
  WRITE:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, requester: pack }]
      - trips: [{ path: acc-cpu, bytes: 64 B, reply: 64 B, requester: pack }]
  KEEP:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: unpack }]
";

#[test]
fn half_of_burst_takes_accelerator_before_shared_processor() {
    let host = host();
    let application = Application::parse("store.yaml", APPLICATION).expect("right");
    let paths = Paths::of(&host, &host, &application).expect("paths");
    let counts = burst(&paths);
    assert!(counts.iter().all(|count| (7..=9).contains(count)), "{counts:?}");
}

/// Computation of the responder delays the requester if both are one machine.
#[test]
fn ends_on_one_machine_share_nodes() {
    let host = host();
    let application = Application::parse("files.yaml", PACKED).expect("right");
    let chosen = |paths: &Paths| {
        let kinds = ["KEEP", "KEEP", "WRITE"].map(|name| paths.kind(name).expect("a type"));
        let mut selector = Selector::new(paths, SelectionStrategy::Leo, Config::default());
        kinds.map(|kind| match selector.select(Instant(0), &SelectionRequest { kind, address: 0, message: 0 }) {
            Decision::Send(dispatch) => paths.path(dispatch.path).name.clone(),
            other => panic!("{other:?}"),
        })
    };
    let apart = Paths::of(&host, &host, &application).expect("paths");
    assert_eq!(chosen(&apart)[2], "cpu-cpu");
    let together = Paths::of_machine(&host, &host, &application).expect("paths");
    assert_eq!(chosen(&together)[2], "acc-cpu");
}

fn host() -> Hardware {
    let mut host = Hardware::preset(Preset::OffPath);
    host.nodes.iter_mut().for_each(|node| node.slots = 1);
    host
}

/// Paths of sixteen simultaneous requests.
fn burst(paths: &Paths) -> [usize; 2] {
    let kind = KindId(0);
    let mut selector = Selector::new(paths, SelectionStrategy::Leo, Config::default());
    let mut counts = [0; 2];
    for message in 0..16 {
        match selector.select(Instant(message), &SelectionRequest { kind, address: 0, message }) {
            Decision::Send(dispatch) => counts[usize::from(dispatch.path.0)] += 1,
            other => panic!("{other:?}"),
        }
    }
    counts
}
