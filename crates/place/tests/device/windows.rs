//! Windows in the memory of devices: kernels and one-sided accesses share it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use pathcall_place::context::comm::{CommFunction, InProcess};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::window::{HostWindow, MemoryWindow};
use pathcall_place::context::{Builder, Event, Limits, PlaceContext, RequestMessage};
use pathcall_place::device::discover::open;
use pathcall_place::device::emulated::{Emulated, Rate};
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{
    AnswerLength, AppError, ComputeDevice, DeviceKind, DeviceWindow, Kernel, TaskCode, WorkItemCount,
};
use pathcall_place::model::{Application, Hardware, Preset};
use pathcall_place::{Config, DeviceRole};

use super::{LIMIT, run};
use crate::accelerators::{accelerators, code, kernel};

/// All requests go to the accelerator.
const APPLICATION: &str = "application: values
tasks:
  look-up: { cpu: 20 us, acc: 20 us }
requests:
  GET:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: look-up }]
";

/// Answers with the byte of the window at each position that the request names.
const LOOK_UP: &str = "kernel void look_up(global const uchar *input, uint input_bytes, global uchar *output, uint max, \
                       global uchar *window) {\n\
                       uint i = get_global_id(0);\n\
                       if (i < input_bytes && i < max) output[i] = window[input[i]];\n}";

/// Answers with the least and the greatest byte of a window; then fills it with the first byte of the request, unless
/// that is 0.
const SPREAD: &str = "kernel void spread(global const uchar *input, uint input_bytes, global uchar *output, uint max, \
                      global uchar *window, global const uchar *length) {\n\
                      uint bytes = length[0] * 256u, least = 255, greatest = 0;\n\
                      if (get_global_id(0) != 0) return;\n\
                      for (uint i = 0; i < bytes; i++) {\n\
                        least = window[i] < least ? window[i] : least;\n\
                        greatest = window[i] > greatest ? window[i] : greatest;\n\
                      }\n\
                      if (input[0] != 0) for (uint i = 0; i < bytes; i++) window[i] = input[0];\n\
                      output[0] = least;\n\
                      output[1] = greatest;\n}";

fn pool() -> Arc<dyn ComputeDevice> {
    Arc::new(CpuPool::start(&PoolConfig::new(1)).expect("threads"))
}

fn emulated() -> Arc<dyn ComputeDevice> {
    Arc::new(Emulated::start("test", Rate::default(), Vec::new()).expect("a thread"))
}

fn devices() -> impl Iterator<Item = Arc<dyn ComputeDevice>> {
    accelerators().chain([emulated()])
}

/// Look-up on the host, which any window allows.
fn look_up_on_host(window: DeviceWindow) -> TaskCode {
    let function = move |input: &[u8], output: &mut [u8]| {
        for (to, from) in output.iter_mut().zip(input) {
            let at = usize::from(*from);
            window.read(at, std::slice::from_mut(to)).map_err(|error| AppError(error.to_string()))?;
        }
        Ok(input.len())
    };
    TaskCode::Host(Arc::new(function), AnswerLength::AsInput)
}

/// Look-up in the form that the window's device runs, in the memory of the window.
fn look_up(device: &dyn ComputeDevice, window: &DeviceWindow) -> TaskCode {
    if device.info().kind == DeviceKind::Emulated {
        return look_up_on_host(window.clone());
    }
    let tables = vec![window.clone().into()];
    code(Kernel { tables, ..kernel(LOOK_UP, "look_up", AnswerLength::AsInput) }, device)
}

fn builder() -> Builder {
    let hardware = || Hardware::preset(Preset::Direct);
    let application = Application::parse("values.yaml", APPLICATION).expect("right");
    // No pause of a busy machine is a failure of the device.
    let select = Config::default().stall_factor(u32::MAX);
    Builder::new(application, hardware(), hardware()).limits(Limits { select, stall: LIMIT, ..Limits::default() })
}

fn server(device: &Arc<dyn ComputeDevice>, window: &DeviceWindow, comm: impl CommFunction + 'static) -> Builder {
    builder()
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, Arc::clone(device))
        .reg_app_func(look_up_on_host(window.clone()), "look-up", DeviceRole::Cpu, 0)
        .reg_app_func(look_up(&**device, window), "look-up", DeviceRole::Acc, 0)
        .reg_comm_func(comm, "works", DeviceRole::Cpu)
        .reg_mem_func(Arc::new(window.clone()), "values", DeviceRole::Acc)
}

fn accessed(context: &mut PlaceContext) -> Result<Bytes, String> {
    match context.wait(LIMIT).expect("in time") {
        Event::Accessed { result, .. } => result.map_err(|error| error.to_string()),
        other => panic!("{other:?}"),
    }
}

/// A requester writes into the accelerator's memory of a responder; kernels there read what it wrote.
fn write_and_look_up(
    device: &Arc<dyn ComputeDevice>,
    asks: impl CommFunction + 'static,
    works: impl CommFunction + 'static,
) {
    let window = device.window(256).expect("a window");
    let server = server(device, &window, works).init().expect("context starts").spawn().expect("a thread");
    let mut context = builder().reg_comm_func(asks, "asks", DeviceRole::Cpu).init().expect("context starts");
    let kind = context.kind("GET").expect("a type");
    let ask = |context: &mut PlaceContext, payload: &'static [u8]| {
        let payload = Bytes::from_static(payload);
        context.send(RequestMessage { kind, address: 0, message: 0, tag: 0, payload }).expect("room");
        match context.wait(LIMIT).expect("in time") {
            Event::Answer(answer) => answer.result.expect("an answer"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut context, &[0, 9]), vec![0, 0], "new windows are zero");
    for round in 1..=20 {
        context.write("values", 9, Bytes::from(vec![round, round + 1]), 1).expect("room");
        assert_eq!(accessed(&mut context), Ok(Bytes::new()));
        assert_eq!(ask(&mut context, &[8, 9, 10, 11]), vec![0, round, round + 1, 0], "{device:?}");
    }
    context.read("values", 8, 4, 2).expect("room");
    assert_eq!(accessed(&mut context), Ok(Bytes::from_static(&[0, 20, 21, 0])));
    context.read("values", 250, 7, 3).expect("room");
    let refused = accessed(&mut context).expect_err("outside");
    assert!(refused.contains("access to 7 bytes at 250 exceeds window `values` of 256 bytes"), "{refused}");
    let telemetry = server.stop().expect("no panic").telemetry();
    assert!(telemetry.devices[1].stats.done >= 21 && telemetry.devices[1].stats.failed == 0, "{telemetry}");
}

#[test]
fn kernel_reads_bytes_of_other_context() {
    for device in devices() {
        let (asks, works) = InProcess::pair();
        write_and_look_up(&device, asks, works);
    }
}

#[test]
fn kernel_reads_bytes_of_other_host() {
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    for device in devices() {
        let works = Remote::bind(free, None).expect("a port");
        let asks = Remote::bind(free, Some(works.address())).expect("a port").timeout(LIMIT);
        write_and_look_up(&device, asks, works);
    }
}

/// Accesses and kernels never see a part of a write, of another thread or of a kernel.
#[test]
fn access_is_whole_for_kernels_and_other_accesses() {
    const BYTES: usize = 16 << 10;
    for device in accelerators() {
        let window = device.window(BYTES).expect("a window");
        let length = Bytes::from(vec![(BYTES / 256) as u8]);
        let mut spread = kernel(SPREAD, "spread", AnswerLength::Exactly(2));
        (spread.items, spread.group) = (WorkItemCount::Exactly(1), 1);
        spread.tables = vec![window.clone().into(), length.into()];
        let function = device.load("spread", &code(spread, &*device)).expect("program compiles");
        let done = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                for value in (1..=250).cycle().take_while(|_| !done.load(Ordering::Acquire)) {
                    window.write(0, &[value; BYTES]).expect("written");
                }
            });
            let reader = scope.spawn(|| {
                let (mut bytes, mut reads) = (vec![0; BYTES], 0);
                while !done.load(Ordering::Acquire) || reads == 0 {
                    window.read(0, &mut bytes).expect("read");
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a read of parts of two writes");
                    reads += 1;
                }
                reads
            });
            // Every other job overwrites the window.
            let jobs: Vec<_> = (0..200).map(|job| Bytes::from(vec![251 * (job % 2)])).collect();
            let answers = run(&*device, function, &jobs, 2);
            done.store(true, Ordering::Release);
            for answer in &answers {
                let answer = answer.as_ref().expect("an answer");
                assert_eq!(answer[0], answer[1], "a kernel saw parts of two writes");
            }
            reader.join().expect("no panic")
        });
        assert!(seen > 0);
        // A kernel after the end of a write uses its bytes, and a read after the end of a job gets the kernel's.
        window.write(0, &[7; BYTES]).expect("written");
        let answers = run(&*device, function, &[Bytes::from_static(&[9])], 2);
        assert_eq!(answers[0], Ok(Bytes::from_static(&[7, 7])));
        let mut last = [0];
        window.read(BYTES - 1, &mut last).expect("read");
        assert_eq!(last, [9]);
        // Longer than the memory that is kept for copies.
        let long = device.window(3 << 20).expect("a window");
        let bytes: Vec<u8> = (0..3_u32 << 20).map(|i| (i % 251) as u8).collect();
        long.write(0, &bytes).expect("written");
        let mut back = vec![0; bytes.len()];
        long.read(0, &mut back).expect("read");
        assert!(back == bytes);
    }
}

/// Accesses that wait run on a thread of their own.
#[test]
fn only_accelerator_windows_may_wait() {
    for device in devices() {
        let window = device.window(8).expect("a window");
        assert_eq!(window.may_wait(), device.info().kind != DeviceKind::Emulated);
        assert!(device.owns(&window) && window.device() == device.info().name && window.len() == 8);
        let outside = window.write(7, b"ab").expect_err("outside").to_string();
        assert_eq!(outside, "access to 2 bytes at 7 exceeds a window of 8 bytes");
        assert!(window.read(usize::MAX, &mut [0]).is_err());
        assert_eq!((window.write(8, b""), window.read(8, &mut [])), (Ok(()), Ok(())));
        let name = &device.info().name;
        let none = device.window(0).expect_err("empty").to_string();
        assert_eq!(none, format!("{name} cannot register 0 bytes: a window has at least one byte"));
        let long = device.window(1 << 62).expect_err("too long").to_string();
        assert!(long.starts_with(&format!("{name} cannot register {} bytes: ", 1_u64 << 62)), "{long}");
        assert!(!long.contains('\n'), "{long}");
    }
}

#[test]
fn window_of_other_device_is_rejected() {
    let other = emulated().window(8).expect("a window");
    for device in accelerators() {
        let name = &device.info().name;
        let load =
            |window: DeviceWindow| device.load("f", &look_up(&*device, &window)).expect_err("rejected").to_string();
        let told = format!(
            "{name} cannot run `f` with a window of emulated (test): create the window with the `window` of this device"
        );
        assert_eq!(load(other.clone()), told);
        // The same accelerator, opened a second time.
        let choice = name.split_once(' ').expect("a name").0.parse().expect("a choice");
        let again = open(&choice).expect("a device").window(8).expect("a window");
        assert!(load(again).contains(&format!("with a window of {name}: ")));
    }
    let device = emulated();
    let window = device.window(8).expect("a window");
    let init = |memory: Arc<dyn MemoryWindow>, role| {
        let context = server(&device, &window, InProcess::itself()).reg_mem_func(memory, "more", role).init();
        context.err().map(|error| error.to_string())
    };
    let registered =
        |role: &str, what: &str| Some(format!("memory `more` is registered for {role}, but is memory of {what}"));
    assert_eq!(init(Arc::new(window.clone()), DeviceRole::Acc), None);
    let instead = "the host: register it for cpu, or a window of the accelerator";
    assert_eq!(init(Arc::new(HostWindow::new([0; 8])), DeviceRole::Acc), registered("acc", instead));
    let instead = "emulated (test), not of emulated (test): create it with `window` of the role's device";
    assert_eq!(init(Arc::new(other.clone()), DeviceRole::Acc), registered("acc", instead));
    let instead = "emulated (test), not of cpu: create it with `window` of the role's device";
    assert_eq!(init(Arc::new(other.clone()), DeviceRole::Cpu), registered("cpu", instead));
    let alone = builder().reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu);
    let alone = alone.reg_mem_func(Arc::new(other), "more", DeviceRole::Acc).init().expect_err("no device").to_string();
    assert_eq!(Some(alone), registered("acc", "emulated (test), and acc has no device: call `device`"));
}
