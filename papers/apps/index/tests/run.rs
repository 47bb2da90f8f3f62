//! Every answer is the processor's, message by message, whatever paths they take; and a broken order is found out.

use apps_offload::{Bed, Between, Outcome, Plan};
use index::{FILE, Load, Mix};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::model::{Dependency, Preset};
use pathcall_place::{Application, Hardware, Strategy};

/// Every second request is a PUT, every fourth of those of a new key, and there are few parts: much stands in order.
const MIX: Mix =
    Mix { keys: 2000, puts: 0.5, inserts: 0.25, parts: 3, messages: 120, rounds: 1, seed: 3, follows: true };

fn plan(cpu: &str, acc: &str, between: Between) -> Plan {
    // Messages of 32 requests.
    let text = FILE.1.replace("bytes: 4 KiB,", "bytes: 256 B,");
    let application = Application::parse(FILE.0, &text).expect("right");
    let hardware = || Hardware::preset(Preset::OffPath);
    let devices = [cpu, acc].map(|device| device.parse::<Choice>().expect("a device"));
    Plan { application, requester: hardware(), responder: hardware(), devices, between, window: 32 }
}

fn run(plan: Plan, mix: Mix, strategy: Strategy) -> Outcome {
    let mut load = Load::new(&plan.application, mix).expect("messages");
    let bed = Bed::new(plan, &load).expect("devices");
    bed.run(&mut load, strategy).expect("answers")
}

fn assert_equal(outcome: &Outcome, messages: u64) {
    assert_eq!((outcome.messages, outcome.wrong), (messages, 0), "{:?}", outcome.why);
}

#[test]
fn no_get_is_stale_over_any_path() {
    for between in [Between::Itself, Between::Process, Between::Udp] {
        for strategy in [Strategy::Leo, Strategy::RoundRobin, Strategy::AllAcc] {
            let plan = plan("cpu:2", "emulated:per-job=50us,slots=3,latency=100us", between);
            let outcome = run(plan, MIX, strategy);
            assert_equal(&outcome, 120);
            let gets = outcome.paths.iter().find(|share| share.path == "cpu-acc,cpu-cpu").expect("a path");
            assert!(strategy == Strategy::Leo || gets.messages >= 20, "{strategy:?}, {between:?}: {outcome:?}");
        }
    }
}

#[test]
fn an_index_that_missed_inserts_costs_no_answer() {
    let plan = plan("cpu:1", "emulated:per-job=20us", Between::Itself);
    assert_equal(&run(plan, Mix { follows: false, ..MIX }, Strategy::AllAcc), 120);
}

#[test]
fn a_broken_order_is_found_out() {
    let mut plan = plan("cpu:1", "emulated:per-job=20us,latency=3ms", Between::Itself);
    plan.application.requests.iter_mut().for_each(|request| request.dependency = Dependency::None);
    let outcome = run(plan, MIX, Strategy::AllAcc);
    assert!(outcome.wrong > 0 && outcome.why.expect("a reason").contains("has version"), "{}", outcome.wrong);
}

#[test]
fn a_kernel_finds_what_the_processor_finds_new_keys_too() {
    if let Err(error) = open(&Choice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    for inserts in [0.02, 0.25] {
        // Of a processor that keeps order, GETs would follow PUTs of their part there.
        let plan = plan("cpu:2", "opencl:0", Between::Itself);
        let outcome = run(plan, Mix { inserts, ..MIX }, Strategy::AllAcc);
        assert_equal(&outcome, 120);
        assert!(outcome.devices[1].done >= 30 && outcome.devices[1].failed == 0, "{outcome:?}");
    }
}

#[test]
fn a_file_without_room_for_a_key_is_refused() {
    let small = FILE.1.replace("bytes: 4 KiB,", "bytes: 4 B,");
    let application = Application::parse(FILE.0, &small).expect("right");
    let said = Load::new(&application, MIX).expect_err("no room").to_string();
    assert_eq!(said, "kvs.yaml: a GET has no room for a key of 8 bytes on its first trip");
}
