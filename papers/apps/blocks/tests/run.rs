//! Every answer is what the layers painted over each other have, whatever paths messages take.

use apps_offload::{Bed, Between, Outcome, Plan, Workload};
use blocks::{FILE, Load, Reads, Shape};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Strategy};

const READS: Reads = Reads {
    shape: Shape { volumes: 18, blocks: 300, layers: 5, extents: 20, disk: 64 },
    large: 0.3,
    messages: 60,
    rounds: 2,
    seed: 5,
};

fn load() -> Load {
    let application = Application::parse(FILE.0, FILE.1).expect("right");
    Load::new(&application, READS).expect("messages")
}

fn run(acc: &str, strategy: Strategy, between: Between) -> Outcome {
    let devices = ["cpu:2", acc].map(|device| device.parse::<Choice>().expect("a device"));
    let application = Application::parse(FILE.0, FILE.1).expect("right");
    let hardware = || Hardware::preset(Preset::OnPath);
    let plan = Plan { application, requester: hardware(), responder: hardware(), devices, between, window: 8 };
    let mut load = load();
    let bed = Bed::new(plan, &load).expect("devices");
    bed.run(&mut load, strategy).expect("answers")
}

fn assert_equal(outcome: &Outcome) {
    assert_eq!((outcome.messages, outcome.wrong), (120, 0), "{:?}", outcome.why);
}

#[test]
fn reads_have_their_data_over_any_path() {
    for between in [Between::Itself, Between::Udp] {
        let outcome = run("emulated:per-job=20us,slots=2", Strategy::RoundRobin, between);
        assert_equal(&outcome);
        assert!(outcome.paths.len() == 8 && outcome.paths.iter().all(|share| share.messages > 0), "{outcome:?}");
    }
    assert_equal(&run("emulated:per-job=20us", Strategy::Leo, Between::Process));
}

#[test]
fn kernels_read_what_the_processor_reads() {
    if let Err(error) = open(&Choice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    let outcome = run("opencl:0", Strategy::AllAcc, Between::Itself);
    assert_equal(&outcome);
    assert!(outcome.devices[1].done >= 120 && outcome.devices[1].failed == 0, "{:?}", outcome.devices);
}

#[test]
fn other_data_and_other_lengths_are_found_out() {
    let mut load = load();
    let at = (0..60).find(|at| load.ask(*at).kind == "READ4K").expect("a read of 4 KiB");
    let said = load.check(at, &[0; 64 * 4097]).expect_err("zeros");
    assert!(said.contains("other data"), "{said}");
    let said = load.check(at, &[0; 64]).expect_err("short");
    assert_eq!(said, "an answer of 64 bytes, expected 262208");
}
