//! Devices: the CPU's thread pool, the emulated device, and OpenCL devices.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, unbounded};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::emulated::{Emulated, EmulatedFault, PlantedFault, Rate};
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{
    AnswerLength, AppError, Completion, ComputeDevice, FunctionId, HostFn, Job, JobError, JobRefusal, Kernel,
    MESSAGE_MAX, TaskCode, WorkItemCount,
};

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

const ADD_SEVEN: &str = "kernel void add_seven(global const uchar *input, uint input_bytes, global uchar *output, \
                         uint output_bytes_max) {\n\
                         uint i = get_global_id(0);\n\
                         if (i < input_bytes && i < output_bytes_max) output[i] = input[i] + 7;\n}";

fn kernel(source: &str, entry: &str, length: AnswerLength) -> Kernel {
    Kernel {
        source: source.into(),
        entry: entry.into(),
        options: String::new(),
        items: WorkItemCount::PerInput(1),
        group: 64,
        length,
        tables: Vec::new(),
    }
}

/// OpenCL device, if there is one (PoCL, for example).
fn opencl() -> Option<Arc<dyn ComputeDevice>> {
    match open(&DeviceChoice::OpenCl(0)) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
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

#[test]
fn kernel_answer_equals_host_answer() {
    let Some(device) = opencl() else { return };
    let function = device
        .load("add", &TaskCode::OpenCl(kernel(ADD_SEVEN, "add_seven", AnswerLength::AsInput)))
        .expect("program compiles");
    assert_eq!(run(&*device, function, &inputs(), 100_000), expected(&inputs()));
    // Registered memory is reused, with many jobs in flight.
    let (done, completions) = unbounded();
    let mut regions: Vec<_> = (0..8).map(|_| device.register(64, 64).expect("memory")).collect();
    let mut sent = 0_u64;
    for round in 0..50 {
        for region in regions.drain(..) {
            let input = Bytes::from(vec![round; 32 + usize::from(round) % 33]);
            device.submit(Job { tag: sent, function, input, region, done: done.clone() }).expect("room");
            sent += 1;
        }
        for _ in 0..8 {
            let Completion { region, result, .. } = completions.recv_timeout(LIMIT).expect("in time");
            let (region, bytes) = (region.expect("memory"), result.expect("an answer"));
            assert_eq!(region.output(bytes), vec![round + 7; 32 + usize::from(round) % 33]);
            regions.push(region);
        }
    }
}

#[test]
fn kernel_build_error_has_position() {
    let Some(device) = opencl() else { return };
    let load = |source, entry| {
        device
            .load("f", &TaskCode::OpenCl(kernel(source, entry, AnswerLength::Any)))
            .expect_err("expected a rejection")
            .to_string()
    };
    let message = load("kernel void f(global uchar *x) {\n  x[0] = missing;\n}", "f");
    assert!(
        message.contains("kernel `f` does not compile") && message.contains("missing") && message.contains(":2:"),
        "{message}"
    );
    let message = load(ADD_SEVEN, "sub_seven");
    assert!(message.contains("sub_seven") && message.contains("it has: add_seven"), "{message}");
    let message = load("kernel void f(global uchar *x) { }", "f\0g");
    assert!(message.contains("zero byte"), "{message}");
    assert!(device.load("f", &add_seven()).is_err());
}

#[test]
fn kernel_reports_answer_length_and_uses_tables() {
    let Some(device) = opencl() else { return };
    // One work item repeats each byte; the table has the number of repetitions.
    let source = "kernel void repeat(global const uchar *input, uint input_bytes, global uchar *output, \
                  uint output_bytes_max, global uint *output_bytes, global uchar *times) {\n\
                  if (get_global_id(0) != 0) return;\n\
                  uint at = 0;\n\
                  for (uint i = 0; i < input_bytes; i++)\n\
                    for (uint n = 0; n < times[input[i]]; n++, at++)\n\
                      if (at < output_bytes_max) output[at] = input[i];\n\
                  if (input_bytes != 9) *output_bytes = at;\n}";
    let mut kernel = kernel(source, "repeat", AnswerLength::Any);
    kernel.items = WorkItemCount::Exactly(1);
    kernel.group = 1;
    kernel.tables = vec![Bytes::from((0..=255_u8).map(|byte| byte % 3).collect::<Vec<_>>())];
    let function = device.load("repeat", &TaskCode::OpenCl(kernel)).expect("program compiles");
    let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3, 4]), Bytes::from(vec![2; 20])], 30);
    assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 4])));
    let too_long = answers[1].clone().expect_err("no room").to_string();
    assert_eq!(too_long, "answer of 40 bytes, expected at most 30");
    device.update(function, 0, 3, &[3]).expect("a table");
    let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3]), Bytes::from(vec![0; 9])], 30);
    assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 3, 3, 3])));
    assert!(answers[1].clone().expect_err("no length").to_string().contains("did not say"));
    assert!(device.update(function, 1, 0, &[0]).is_err() && device.update(function, 0, 255, &[0, 0]).is_err());
}

#[test]
fn job_is_accepted_during_table_change() {
    let Some(device) = opencl() else { return };
    let source = "kernel void turn(global const uchar *input, uint input_bytes, global uchar *output, uint max, \
                  global uchar *table) {\n\
                  uint turned = table[0], turns = input[0] * 4000000u;\n\
                  for (uint i = 0; i < turns; i++) turned = turned * 1664525u + 1013904223u;\n\
                  output[0] = table[0];\n\
                  output[1] = turned;\n}";
    let mut kernel = kernel(source, "turn", AnswerLength::Exactly(2));
    (kernel.items, kernel.group, kernel.tables) = (WorkItemCount::Exactly(1), 1, vec![Bytes::from_static(&[1])]);
    let function = device.load("turn", &TaskCode::OpenCl(kernel)).expect("program compiles");
    // Compile first.
    run(&*device, function, &[Bytes::from_static(&[0])], 2);
    // On a paused machine a short job may end too early; the next job is longer.
    let shown = [8, 32, 128, 255].into_iter().any(|turns| {
        device.update(function, 0, 0, &[1]).expect("a table");
        let (done, completions) = unbounded();
        let submit = |tag, turns| {
            let region = device.register(2, 2).expect("memory");
            let job = Job { tag, function, input: Bytes::from(vec![turns]), region, done: done.clone() };
            device.submit(job).expect("room");
        };
        submit(0, turns);
        let shown = std::thread::scope(|scope| {
            let changes = scope.spawn(|| device.update(function, 0, 0, &[2]));
            // No event reports that the thread waits for the device; if it does not wait yet, the test shows less.
            std::thread::sleep(Duration::from_millis(100));
            submit(1, 0);
            let is_changed = changes.is_finished();
            let runs = completions.is_empty();
            assert!(!(runs && is_changed), "table changed during a job");
            changes.join().expect("no panic").expect("a table");
            runs
        });
        submit(2, 0);
        let tables = collect(&completions, 3).into_iter().map(|answer| answer.expect("an answer")[0]);
        assert_eq!(tables.step_by(2).collect::<Vec<_>>(), [1, 2]);
        shown
    });
    assert!(shown, "each change waited for the job before it");
}

#[test]
fn memory_of_other_device_is_refused_and_returned() {
    let Some(device) = opencl() else { return };
    let pool = CpuPool::start(&PoolConfig::new(1)).expect("threads");
    let function = device
        .load("add", &TaskCode::OpenCl(kernel(ADD_SEVEN, "add_seven", AnswerLength::AsInput)))
        .expect("program compiles");
    let (done, completions) = unbounded();
    let input = Bytes::from_static(b"four");
    let region = pool.register(4, 4).expect("memory");
    let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
    let refused = device.submit(job).expect_err("region of another device");
    assert!(refused.reason == JobRefusal::Memory && refused.job.is_some(), "{refused:?}");
    let region = device.register(3, 4).expect("memory");
    let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
    assert_eq!(device.submit(job).expect_err("too long").reason, JobRefusal::TooLong { max: 3, got: 4 });
    let added = pool.load("add", &add_seven()).expect("loaded");
    let region = device.register(4, 4).expect("memory");
    pool.submit(Job { tag: 1, function: added, input, region, done }).expect("read later");
    assert!(completions.recv_timeout(LIMIT).expect("in time").result.is_err());
}
