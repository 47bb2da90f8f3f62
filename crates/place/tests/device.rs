//! Devices: the CPU's thread pool, the emulated device, and accelerators.

mod kernels;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, unbounded};
use pathcall_place::device::emulated::{Emulated, EmulatedFault, PlantedFault, Rate};
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{
    AnswerLength, AppError, Completion, ComputeDevice, FunctionId, HostFn, Job, JobError, JobRefusal, MESSAGE_MAX,
    TaskCode,
};

use crate::accelerators::kernel;

/// Timeout, reached only if the test hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// Function that adds 7 to each byte.
fn add_seven() -> TaskCode {
    let function: HostFn = Arc::new(|input, output| {
        for (to, from) in output.iter_mut().zip(input) {
            *to = from.wrapping_add(7);
        }
        Ok(input.len())
    });
    TaskCode::Host(function, AnswerLength::AsInput)
}

/// Submits all inputs at once; returns the answers in their order.
fn run(device: &dyn ComputeDevice, function: FunctionId, inputs: &[Bytes], max: usize) -> Vec<Result<Bytes, JobError>> {
    let (done, completions) = unbounded();
    for (tag, input) in inputs.iter().enumerate() {
        let region = device.register(max, max).expect("memory");
        let job = Job { tag: tag as u64, function, input: input.clone(), region, done: done.clone() };
        device.submit(job).expect("room");
    }
    collect(&completions, inputs.len())
}

fn collect(completions: &Receiver<Completion>, count: usize) -> Vec<Result<Bytes, JobError>> {
    let mut answers: Vec<_> = (0..count).map(|_| None).collect();
    for _ in 0..count {
        let Completion { tag, region, result, .. } = completions.recv_timeout(LIMIT).expect("in time");
        let answer = result.map(|bytes| Bytes::copy_from_slice(region.expect("memory").output(bytes)));
        assert!(answers[tag as usize].replace(answer).is_none(), "job {tag} has two completions");
    }
    answers.into_iter().map(|answer| answer.expect("each device has one")).collect()
}

fn inputs() -> Vec<Bytes> {
    [0, 1, 63, 64, 65, 4096, 100_000].iter().map(|len| (0..*len).map(|i: u32| (i * 31 % 251) as u8).collect()).collect()
}

fn expected(inputs: &[Bytes]) -> Vec<Result<Bytes, JobError>> {
    inputs.iter().map(|input| Ok(input.iter().map(|byte| byte.wrapping_add(7)).collect())).collect()
}

#[test]
fn thread_pool_and_emulated_device_give_equal_answers() {
    let pool = CpuPool::start(&PoolConfig::new(2)).expect("threads");
    let rate = Rate { slots: 2, per_job: Duration::from_micros(200), ..Rate::default() };
    let emulated = Emulated::start("test", rate, Vec::new()).expect("a thread");
    for device in [&pool as &dyn ComputeDevice, &emulated] {
        let function = device.load("add", &add_seven()).expect("loaded");
        assert_eq!(run(device, function, &inputs(), 100_000), expected(&inputs()), "{device:?}");
    }
}

#[test]
fn emulated_device_takes_modelled_time() {
    let rate = Rate { slots: 2, per_job: Duration::from_millis(10), ..Rate::default() };
    let device = Emulated::start("test", rate, Vec::new()).expect("a thread");
    let function = device.load("add", &add_seven()).expect("loaded");
    let began = std::time::Instant::now();
    run(&device, function, &vec![Bytes::from_static(b"x"); 8], 8);
    // Two at a time, 10 ms each; longer on a busy machine.
    assert!(began.elapsed() >= Duration::from_millis(40), "{:?}", began.elapsed());
}

#[test]
fn failing_panicking_and_lying_functions_are_job_errors() {
    let device = CpuPool::start(&PoolConfig::new(1)).expect("threads");
    let codes = [
        TaskCode::host(|_, _| Err(AppError("no such key".into()))),
        TaskCode::host(|_, _| panic!("as configured")),
        TaskCode::host(|_, output| Ok(output.len() + 1)),
        TaskCode::Host(Arc::new(|input, _| Ok(input.len() + 1)), AnswerLength::AsInput),
    ];
    let message = codes.map(|code| {
        let function = device.load("f", &code).expect("loaded");
        run(&device, function, &[Bytes::from_static(b"four")], 8).remove(0).expect_err("no answer").to_string()
    });
    let expected = [
        "no such key",
        "the function panicked",
        "answer of 9 bytes, expected at most 8",
        "answer of 5 bytes, expected 4",
    ];
    assert_eq!(message, expected);
    let code = TaskCode::OpenCl(kernel("", "k", AnswerLength::Any));
    let refused = device.load("f", &code).expect_err("not on threads").to_string();
    assert_eq!(refused, "cpu cannot run `f`: got OpenCL C, expected a function of the host");
    let (done, _completions) = unbounded();
    let region = device.register(1, 1).expect("memory");
    let job = Job { tag: 0, function: FunctionId(99), input: Bytes::new(), region, done };
    let refused = device.submit(job).expect_err("no such function");
    assert!(refused.job.is_some() && refused.reason == JobRefusal::Function(FunctionId(99)), "{refused:?}");
    assert!(device.register(MESSAGE_MAX + 1, 0).is_err());
}

#[test]
fn planted_faults_give_expected_completions() {
    let rate = Rate::default();
    let planted = |from, fault| PlantedFault { from, count: 1, fault };
    let faults = vec![
        planted(1, EmulatedFault::Fails),
        planted(2, EmulatedFault::Length(-1)),
        planted(3, EmulatedFault::Disappears),
        planted(4, EmulatedFault::Gone),
        planted(5, EmulatedFault::Length(5)),
    ];
    let device = Emulated::start("test", rate, faults).expect("a thread");
    let function = device.load("add", &add_seven()).expect("loaded");
    let (done, completions) = unbounded();
    for tag in 0..7 {
        let region = device.register(4, 4).expect("memory");
        let input = Bytes::from_static(b"four");
        device.submit(Job { tag, function, input, region, done: done.clone() }).expect("room");
    }
    drop(done);
    let mut came = Vec::new();
    while let Ok(Completion { tag, result, .. }) = completions.recv_timeout(LIMIT) {
        came.push((tag, result.map_err(|error| error.to_string())));
    }
    let expected: Vec<(u64, Result<usize, String>)> = vec![
        (0, Ok(4)),
        (1, Err("planted: it failed".into())),
        (2, Err("answer of 3 bytes, expected 4".into())),
        (4, Err("the device is gone".into())),
        (5, Err("answer of 9 bytes, expected 4".into())),
        (6, Ok(4)),
    ];
    assert_eq!(came, expected);
}
