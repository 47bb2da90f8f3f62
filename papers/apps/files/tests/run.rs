//! Files read equal files written, on every path of the chunks, and with faulty devices.

use std::sync::Arc;
use std::time::Duration;

use apps_chunk::HEADER_LEN;
use apps_offload::{AppRun, AppTestbed, AppWorkload, HostLink, StrategyResults};
use bytes::Bytes;
use files::{APPLICATION, Codec, FileLoad, FileStore, tasks};
use pathcall_place::context::comm::InProcess;
use pathcall_place::context::{Builder, Event, Limits, PlaceContext, RequestMessage};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::emulated::{Emulated, EmulatedFault, PlantedFault, Rate};
use pathcall_place::device::{ComputeDevice, TaskCode};
use pathcall_place::model::Preset;
use pathcall_place::{Application, DeviceRole, Hardware, SelectionStrategy};

const EMULATED: &str = "emulated:per-job=200us";
/// Strategy that uses both devices, whatever the load of this machine.
const BY_TURNS: SelectionStrategy = SelectionStrategy::RoundRobin;

fn plan(acc: &str, between: HostLink) -> AppRun {
    let hardware = || Hardware::preset(Preset::OffPath);
    let devices = ["cpu:1", acc].map(|device| device.parse::<DeviceChoice>().expect("a device"));
    let application = Application::parse(APPLICATION.0, APPLICATION.1).expect("right");
    AppRun { application, requester: hardware(), responder: hardware(), devices, between, window: 16 }
}

fn run(plan: AppRun, load: &mut FileLoad, strategies: &[SelectionStrategy]) -> Vec<StrategyResults> {
    let testbed = AppTestbed::new(plan, load).expect("devices");
    let runs = strategies.iter().map(|strategy| testbed.run(load, *strategy).expect("answers"));
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
fn files_equal_written_content_with_each_strategy() {
    for codec in [Codec::Words, Codec::Lz4] {
        let mut load = FileLoad::new(codec, 16, 700_001, true);
        let strategies = [SelectionStrategy::AllCpu, SelectionStrategy::AllAcc, SelectionStrategy::Leo, BY_TURNS];
        let runs = run(plan(EMULATED, HostLink::Itself), &mut load, &strategies);
        let by_turns = &runs[3];
        // Four paths to write, two to read.
        assert!(by_turns.paths.iter().all(|share| share.messages > 0), "{:?}", by_turns.paths);
    }
}

#[test]
fn files_equal_written_content_over_udp() {
    run(plan(EMULATED, HostLink::Udp), &mut FileLoad::new(Codec::Lz4, 8, 400_000, true), &[BY_TURNS]);
}

#[test]
fn kernels_and_processor_share_file() {
    if let Err(error) = open(&DeviceChoice::OpenCl(0)) {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{error}");
        return println!("skipped: {error}");
    }
    // One file contains LZ4 from the processor and words from the kernel; both devices unpack both.
    for codec in [Codec::Words, Codec::Lz4] {
        let runs = run(plan("opencl:0", HostLink::Process), &mut FileLoad::new(codec, 8, 1 << 20, true), &[BY_TURNS]);
        assert!(runs[0].share("acc-acc") > 0.0, "{:?}", runs[0].paths);
    }
}

fn context(store: &Arc<FileStore>, acc: Arc<dyn ComputeDevice>, spoil: bool) -> PlaceContext {
    let hardware = || Hardware::preset(Preset::Direct);
    let mut application = Application::parse(APPLICATION.0, APPLICATION.1).expect("right");
    for (task, role) in application.unknown() {
        application.set_compute(task, role, 100_000);
    }
    // Wrong bytes of the right length, which only the checksum detects.
    let decompress = TaskCode::host(move |chunk: &[u8], to: &mut [u8]| {
        let bytes =
            apps_chunk::unpack(chunk, to).map_err(|error| pathcall_place::device::AppError(error.to_string()))?;
        to[bytes - 1] ^= u8::from(spoil);
        Ok(bytes)
    });
    let limits = Limits { stall: Duration::from_millis(50), ..Limits::default() };
    let room = HEADER_LEN + files::CHUNK;
    Builder::new(application, hardware(), hardware())
        .limits(limits)
        .strategy(BY_TURNS)
        .device(DeviceRole::Cpu, open(&DeviceChoice::cpu(1)).expect("threads"))
        .device(DeviceRole::Acc, acc)
        .reg_app_func(tasks::compress(Codec::Words), "compress", DeviceRole::Cpu, room)
        .reg_app_func(tasks::compress(Codec::Words), "compress", DeviceRole::Acc, room)
        .reg_app_func(tasks::decompress(), "decompress", DeviceRole::Cpu, room)
        .reg_app_func(decompress, "decompress", DeviceRole::Acc, room)
        .task_hooks(Arc::clone(store) as _)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .init()
        .expect("a context")
}

/// Writes files of two chunks each, and checks the store.
fn write(context: &mut PlaceContext, store: &FileStore, files: u64) {
    let kind = context.kind("WRITE").expect("a type");
    let raw = |file: u64, index: u32| vec![file as u8 ^ index as u8; 5000];
    for file in 0..files {
        for index in 0..2 {
            let payload = apps_chunk::plain(file, 1, index, 2, &raw(file, index)).into();
            context.send(RequestMessage { kind, address: file, message: file, tag: file, payload }).expect("room");
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
fn faulty_device_corrupts_no_file() {
    let rate = Rate { per_job: Duration::from_micros(50), ..Rate::default() };
    let (some, all) =
        (|fault| vec![PlantedFault { from: 3, count: 4, fault }], |fault| vec![PlantedFault::forever(0, fault)]);
    let faults = [
        some(EmulatedFault::Fails),
        some(EmulatedFault::Length(-7)),
        all(EmulatedFault::Gone),
        some(EmulatedFault::Disappears),
        Vec::new(),
    ];
    for faults in faults {
        let store = Arc::new(FileStore::new(1 << 24, 0, 1));
        let spoil = faults.is_empty();
        let acc = Arc::new(Emulated::start("test", rate.clone(), faults).expect("a thread"));
        let mut context = context(&store, acc, spoil);
        write(&mut context, &store, 16);
        let failed = context.telemetry().paths.iter().map(|path| path.state.failed).sum::<u64>();
        assert!(failed > 0, "{}", context.telemetry());
    }
}

#[test]
fn failed_requests_are_described() {
    let store = Arc::new(FileStore::new(1 << 20, 0, 1));
    let acc = Emulated::start("test", Rate::default(), Vec::new());
    let mut context = context(&store, Arc::new(acc.expect("a thread")), false);
    let mut asked = |kind: &str, payload: Bytes| {
        let kind = context.kind(kind).expect("a type");
        context.send(RequestMessage { kind, address: 0, message: 0, tag: 0, payload }).expect("room");
        let Some(Event::Answer(answer)) = context.wait(Duration::from_secs(30)) else { panic!("no answer") };
        answer.result.expect_err("an invalid request")
    };
    for _ in 0..4 {
        assert_eq!(asked("READ", files::store::ask(9, 0, 0)).to_string(), "file 9 does not exist");
        let printed = asked("WRITE", Bytes::from_static(b"hello")).to_string();
        assert!(printed.starts_with("not a chunk: 5 bytes"), "{printed}");
        let mut wrong = apps_chunk::plain(1, 1, 0, 1, &[5; 600]);
        wrong[HEADER_LEN] = 6;
        let printed = asked("WRITE", wrong.into()).to_string();
        assert!(printed.contains("chunk 0 of file 1 has checksum"), "{printed}");
    }
}
