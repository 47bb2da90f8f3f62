//! Answers equal the processor's on every path, and a wrong order is detected.

use apps_offload::{AppRun, AppTestbed, HostLink, StrategyResults};
use index::{FILE, IndexLoad, YcsbMix};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::model::{Dependency, Preset};
use pathcall_place::{Application, Hardware, SelectionStrategy};

/// Half of the requests are PUTs, a quarter of those insert keys, and there are few partitions, so that many requests
/// are ordered.
const MIX: YcsbMix =
    YcsbMix { keys: 2000, puts: 0.5, inserts: 0.25, parts: 3, messages: 120, rounds: 1, seed: 3, updates_copies: true };

fn plan(cpu: &str, acc: &str, between: HostLink) -> AppRun {
    // Messages of 32 requests.
    let text = FILE.1.replace("bytes: 4 KiB,", "bytes: 256 B,");
    let application = Application::parse(FILE.0, &text).expect("right");
    let hardware = || Hardware::preset(Preset::OffPath);
    let devices = [cpu, acc].map(|device| device.parse::<DeviceChoice>().expect("a device"));
    AppRun { application, requester: hardware(), responder: hardware(), devices, between, window: 32 }
}

fn run(plan: AppRun, mix: YcsbMix, strategy: SelectionStrategy) -> StrategyResults {
    let mut load = IndexLoad::new(&plan.application, mix).expect("messages");
    let testbed = AppTestbed::new(plan, &load).expect("devices");
    testbed.run(&mut load, strategy).expect("answers")
}

fn assert_equal(outcome: &StrategyResults, messages: u64) {
    assert_eq!((outcome.messages, outcome.wrong), (messages, 0), "{:?}", outcome.why);
}

#[test]
fn no_get_is_stale_on_any_path() {
    for between in [HostLink::Itself, HostLink::Process, HostLink::Udp] {
        for strategy in [SelectionStrategy::Leo, SelectionStrategy::RoundRobin, SelectionStrategy::AllAcc] {
            let plan = plan("cpu:2", "emulated:per-job=50us,slots=3,latency=100us", between);
            let outcome = run(plan, MIX, strategy);
            assert_equal(&outcome, 120);
            let gets = outcome.paths.iter().find(|share| share.path == "cpu-acc,cpu-cpu").expect("a path");
            assert!(
                strategy == SelectionStrategy::Leo || gets.messages >= 20,
                "{strategy:?}, {between:?}: {outcome:?}"
            );
        }
    }
}

#[test]
fn outdated_index_copy_gives_correct_answers() {
    let plan = plan("cpu:1", "emulated:per-job=20us", HostLink::Itself);
    assert_equal(&run(plan, YcsbMix { updates_copies: false, ..MIX }, SelectionStrategy::AllAcc), 120);
}

#[test]
fn wrong_order_is_detected() {
    let mut plan = plan("cpu:1", "emulated:per-job=20us,latency=3ms", HostLink::Itself);
    plan.application.requests.iter_mut().for_each(|request| request.dependency = Dependency::None);
    let outcome = run(plan, MIX, SelectionStrategy::AllAcc);
    assert!(outcome.wrong > 0 && outcome.why.expect("a reason").contains("has version"), "{}", outcome.wrong);
}

#[test]
fn kernel_lookups_equal_processor_lookups_after_inserts() {
    if let Err(error) = open(&DeviceChoice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    for inserts in [0.02, 0.25] {
        // On a processor that keeps order, GETs would follow the PUTs of their partition.
        let plan = plan("cpu:2", "opencl:0", HostLink::Itself);
        let outcome = run(plan, YcsbMix { inserts, ..MIX }, SelectionStrategy::AllAcc);
        assert_equal(&outcome, 120);
        assert!(outcome.devices[1].done >= 30 && outcome.devices[1].failed == 0, "{outcome:?}");
    }
}

#[test]
fn application_file_without_room_for_key_is_rejected() {
    let small = FILE.1.replace("bytes: 4 KiB,", "bytes: 4 B,");
    let application = Application::parse(FILE.0, &small).expect("right");
    let printed = IndexLoad::new(&application, MIX).expect_err("no room").to_string();
    assert_eq!(printed, "kvs.yaml: first trip of GET has no room for a key of 8 bytes");
}
