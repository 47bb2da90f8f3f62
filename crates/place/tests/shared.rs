//! Paths that meet at a resource: a message does not wait there for what is done by the time that it comes.

use pathcall_place::model::Preset;
use pathcall_place::{Application, Config, Decision, Hardware, Paths, Request, Selector, Strategy};
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

#[test]
fn half_of_a_burst_takes_the_accelerator_though_all_end_on_the_processor() {
    let mut host = Hardware::preset(Preset::OffPath);
    host.nodes.iter_mut().for_each(|node| node.slots = 1);
    let application = Application::parse("store.yaml", APPLICATION).expect("right");
    let paths = Paths::of(&host, &host, &application).expect("paths");
    let kind = paths.kind("GET").expect("a type");
    let mut selector = Selector::new(&paths, Strategy::Leo, Config::default());
    let mut counts = [0; 2];
    for message in 0..16 {
        match selector.select(Instant(message), &Request { kind, address: 0, message }) {
            Decision::Go(go) => counts[usize::from(go.path.0)] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(counts.iter().all(|count| (7..=9).contains(count)), "{counts:?}");
}
