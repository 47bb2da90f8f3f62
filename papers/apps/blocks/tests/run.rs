//! Answers of block reads equal the painted layers, on every path.

use apps_offload::{AppRun, AppTestbed, AppWorkload, HostLink, StrategyResults};
use blocks::{BlockLoad, DiskShape, FILE, Reads};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, SelectionStrategy};

const READS: Reads = Reads {
    shape: DiskShape { volumes: 18, blocks: 300, layers: 5, extents: 20, disk: 64 },
    large: 0.3,
    messages: 60,
    rounds: 2,
    seed: 5,
};

fn load() -> BlockLoad {
    let application = Application::parse(FILE.0, FILE.1).expect("right");
    BlockLoad::new(&application, READS).expect("messages")
}

fn run(acc: &str, strategy: SelectionStrategy, between: HostLink) -> StrategyResults {
    let devices = ["cpu:2", acc].map(|device| device.parse::<DeviceChoice>().expect("a device"));
    let application = Application::parse(FILE.0, FILE.1).expect("right");
    let hardware = || Hardware::preset(Preset::OnPath);
    let plan = AppRun { application, requester: hardware(), responder: hardware(), devices, between, window: 8 };
    let mut load = load();
    let testbed = AppTestbed::new(plan, &load).expect("devices");
    testbed.run(&mut load, strategy).expect("answers")
}

fn assert_equal(outcome: &StrategyResults) {
    assert_eq!((outcome.messages, outcome.wrong), (120, 0), "{:?}", outcome.why);
}

#[test]
fn block_reads_return_volume_data_on_every_path() {
    for between in [HostLink::Itself, HostLink::Udp] {
        let outcome = run("emulated:per-job=20us,slots=2", SelectionStrategy::RoundRobin, between);
        assert_equal(&outcome);
        assert!(outcome.paths.len() == 8 && outcome.paths.iter().all(|share| share.messages > 0), "{outcome:?}");
    }
    assert_equal(&run("emulated:per-job=20us", SelectionStrategy::Leo, HostLink::Process));
}

#[test]
fn kernel_reads_equal_processor_reads() {
    if let Err(error) = open(&DeviceChoice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    let outcome = run("opencl:0", SelectionStrategy::AllAcc, HostLink::Itself);
    assert_equal(&outcome);
    assert!(outcome.devices[1].done >= 120 && outcome.devices[1].failed == 0, "{:?}", outcome.devices);
}

#[test]
fn wrong_data_and_wrong_length_are_detected() {
    let mut load = load();
    let at = (0..60).find(|at| load.ask(*at).kind == "READ4K").expect("a read of 4 KiB");
    let printed = load.check(at, &[0; 64 * 4097]).expect_err("zeros");
    assert!(printed.contains("wrong data"), "{printed}");
    let printed = load.check(at, &[0; 64]).expect_err("short");
    assert_eq!(printed, "an answer of 64 bytes, expected 262208");
}
