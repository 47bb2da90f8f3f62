//! Every file read is what was written, whichever path each chunk took, and whatever a device does.

use std::sync::Arc;
use std::time::Duration;

use apps_chunk::HEAD;
use apps_offload::{Bed, Between, Outcome, Plan, Workload};
use bytes::Bytes;
use files::{APPLICATION, Codec, Load, Store, tasks};
use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Builder, Context, Event, Limits, Message};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::emulated::{Emulated, Fault, Planted, Rate};
use pathcall_place::device::{Code, Device};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Role, Strategy};

const EMULATED: &str = "emulated:per-job=200us";
/// So that both are used, whatever else this machine does: the context is not told how slow they are now.
const BY_TURNS: Strategy = Strategy::RoundRobin;

fn plan(acc: &str, between: Between) -> Plan {
    let hardware = || Hardware::preset(Preset::OffPath);
    let devices = ["cpu:1", acc].map(|device| device.parse::<Choice>().expect("a device"));
    let application = Application::parse(APPLICATION.0, APPLICATION.1).expect("right");
    Plan { application, requester: hardware(), responder: hardware(), devices, between, window: 16 }
}

fn run(plan: Plan, load: &mut Load, strategies: &[Strategy]) -> Vec<Outcome> {
    let bed = Bed::new(plan, load).expect("all is there");
    let runs = strategies.iter().map(|strategy| bed.run(load, *strategy).expect("answers"));
    let runs: Vec<_> = runs.collect();
    for run in &runs {
        assert_eq!((run.wrong, &run.why), (0, &None), "{}", run.strategy);
        assert_eq!(run.messages, load.messages() as u64);
    }
    for file in 0..8 {
        assert!(load.store().file(file).as_deref() == Some(load.last(file)), "file {file}");
    }
    runs
}

#[test]
fn files_are_what_was_written_with_each_strategy() {
    for codec in [Codec::Words, Codec::Lz4] {
        let mut load = Load::new(codec, 16, 700_001, true);
        let strategies = [Strategy::AllCpu, Strategy::AllAcc, Strategy::Leo, BY_TURNS];
        let runs = run(plan(EMULATED, Between::Itself), &mut load, &strategies);
        let by_turns = &runs[3];
        // Four ways to write, two to read.
        assert!(by_turns.paths.iter().all(|share| share.messages > 0), "{:?}", by_turns.paths);
    }
}

#[test]
fn between_two_hosts_over_udp() {
    run(plan(EMULATED, Between::Udp), &mut Load::new(Codec::Lz4, 8, 400_000, true), &[BY_TURNS]);
}

#[test]
fn kernels_and_the_processor_share_a_file() {
    if let Err(error) = open(&Choice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    // LZ4 by the processor and words by the kernel, in one file; both unpack both.
    for codec in [Codec::Words, Codec::Lz4] {
        let runs = run(plan("opencl:0", Between::Process), &mut Load::new(codec, 8, 1 << 20, true), &[BY_TURNS]);
        assert!(runs[0].share("acc-acc") > 0.0, "{:?}", runs[0].paths);
    }
}

fn context(store: &Arc<Store>, acc: Arc<dyn Device>, spoil: bool) -> Context {
    let hardware = || Hardware::preset(Preset::Direct);
    let mut application = Application::parse(APPLICATION.0, APPLICATION.1).expect("right");
    for (task, role) in application.unknown() {
        application.set_compute(task, role, 100_000);
    }
    // Right lengths and wrong bytes, which only the checksum sees.
    let decompress = Code::host(move |chunk: &[u8], to: &mut [u8]| {
        let bytes =
            apps_chunk::unpack(chunk, to).map_err(|error| pathcall_place::device::AppError(error.to_string()))?;
        to[bytes - 1] ^= u8::from(spoil);
        Ok(bytes)
    });
    let limits = Limits { stall: Duration::from_millis(50), ..Limits::default() };
    let room = HEAD + files::CHUNK;
    Builder::new(application, hardware(), hardware())
        .limits(limits)
        .strategy(BY_TURNS)
        .device(Role::Cpu, open(&Choice::cpu(1)).expect("threads"))
        .device(Role::Acc, acc)
        .reg_app_func(tasks::compress(Codec::Words), "compress", Role::Cpu, room)
        .reg_app_func(tasks::compress(Codec::Words), "compress", Role::Acc, room)
        .reg_app_func(tasks::decompress(), "decompress", Role::Cpu, room)
        .reg_app_func(decompress, "decompress", Role::Acc, room)
        .around(Arc::clone(store) as _)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .init()
        .expect("it begins")
}

/// Writes files of two chunks each, and gives what the store then has.
fn write(context: &mut Context, store: &Store, files: u64) {
    let kind = context.kind("WRITE").expect("a type");
    let raw = |file: u64, index: u32| vec![file as u8 ^ index as u8; 5000];
    for file in 0..files {
        for index in 0..2 {
            let payload = apps_chunk::plain(file, 1, index, 2, &raw(file, index)).into();
            context.send(Message { kind, address: file, message: file, tag: file, payload }).expect("room");
        }
    }
    for _ in 0..2 * files {
        let Some(Event::Answer(answer)) = context.wait(Duration::from_secs(30)) else { panic!("no answer") };
        assert_eq!(answer.result.map(|bytes| bytes.len()), Ok(files::store::WRITTEN), "file {}", answer.tag);
    }
    for file in 0..files {
        assert!(store.file(file) == Some([raw(file, 0), raw(file, 1)].concat()), "file {file}");
    }
}

#[test]
fn a_device_that_does_wrong_spoils_no_file() {
    let rate = Rate { per_job: Duration::from_micros(50), ..Rate::default() };
    let (some, all) = (|fault| vec![Planted { from: 3, count: 4, fault }], |fault| vec![Planted::forever(0, fault)]);
    let faults = [some(Fault::Fails), some(Fault::Length(-7)), all(Fault::Gone), some(Fault::Disappears), Vec::new()];
    for faults in faults {
        let store = Arc::new(Store::new(1 << 24, 0, 1));
        let spoil = faults.is_empty();
        let acc = Arc::new(Emulated::start("test", rate.clone(), faults).expect("a thread"));
        let mut context = context(&store, acc, spoil);
        write(&mut context, &store, 16);
        let failed = context.telemetry().paths.iter().map(|path| path.state.failed).sum::<u64>();
        assert!(failed > 0, "{}", context.telemetry());
    }
}

#[test]
fn what_can_not_be_done_is_said() {
    let store = Arc::new(Store::new(1 << 20, 0, 1));
    let acc = Emulated::start("test", Rate::default(), Vec::new());
    let mut context = context(&store, Arc::new(acc.expect("a thread")), false);
    let mut asked = |kind: &str, payload: Bytes| {
        let kind = context.kind(kind).expect("a type");
        context.send(Message { kind, address: 0, message: 0, tag: 0, payload }).expect("room");
        let Some(Event::Answer(answer)) = context.wait(Duration::from_secs(30)) else { panic!("no answer") };
        answer.result.expect_err("it can't be done")
    };
    for _ in 0..4 {
        assert_eq!(asked("READ", files::store::ask(9, 0, 0)).to_string(), "there is no file 9");
        let said = asked("WRITE", Bytes::from_static(b"hello")).to_string();
        assert!(said.starts_with("no chunk: 5 bytes"), "{said}");
        let mut wrong = apps_chunk::plain(1, 1, 0, 1, &[5; 600]);
        wrong[HEAD] = 6;
        let said = asked("WRITE", wrong.into()).to_string();
        assert!(said.contains("chunk 0 of file 1 has the checksum"), "{said}");
    }
}
