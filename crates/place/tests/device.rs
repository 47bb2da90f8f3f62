//! Devices: the pool of the CPU, the emulated one, and those that are found.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::{Receiver, unbounded};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::emulated::{Emulated, Fault, Planted, Rate};
use pathcall_place::device::pool::{Pool, PoolConfig};
use pathcall_place::device::{
    AppError, Code, Completion, Device, FunctionId, HostFn, Items, Job, JobError, Kernel, Length, MESSAGE_MAX,
    RefusedReason,
};

/// Reached only when something hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// Adds 7 to each byte.
fn add_seven() -> Code {
    let function: HostFn = Arc::new(|input, output| {
        for (to, from) in output.iter_mut().zip(input) {
            *to = from.wrapping_add(7);
        }
        Ok(input.len())
    });
    Code::Host(function, Length::AsInput)
}

const ADD_SEVEN: &str = "kernel void add_seven(global const uchar *input, uint input_bytes, global uchar *output, \
                         uint output_bytes_max) {\n\
                         uint i = get_global_id(0);\n\
                         if (i < input_bytes && i < output_bytes_max) output[i] = input[i] + 7;\n}";

fn kernel(source: &str, entry: &str, length: Length) -> Kernel {
    Kernel {
        source: source.into(),
        entry: entry.into(),
        options: String::new(),
        items: Items::PerInput(1),
        group: 64,
        length,
        tables: Vec::new(),
    }
}

/// PoCL, or another device of OpenCL.
fn opencl() -> Option<Arc<dyn Device>> {
    match open(&Choice::OpenCl(0)) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Gives a device inputs, all at once: what it answers, in their order.
fn run(device: &dyn Device, function: FunctionId, inputs: &[Bytes], max: usize) -> Vec<Result<Bytes, JobError>> {
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
    answers.into_iter().map(|answer| answer.expect("each has one")).collect()
}

fn inputs() -> Vec<Bytes> {
    [0, 1, 63, 64, 65, 4096, 100_000].iter().map(|len| (0..*len).map(|i: u32| (i * 31 % 251) as u8).collect()).collect()
}

fn expected(inputs: &[Bytes]) -> Vec<Result<Bytes, JobError>> {
    inputs.iter().map(|input| Ok(input.iter().map(|byte| byte.wrapping_add(7)).collect())).collect()
}

#[test]
fn threads_and_an_emulated_device_answer_alike() {
    let pool = Pool::start(&PoolConfig::new(2)).expect("threads");
    let rate = Rate { slots: 2, per_job: Duration::from_micros(200), ..Rate::default() };
    let emulated = Emulated::start("test", rate, Vec::new()).expect("a thread");
    for device in [&pool as &dyn Device, &emulated] {
        let function = device.load("add", &add_seven()).expect("loaded");
        assert_eq!(run(device, function, &inputs(), 100_000), expected(&inputs()), "{device:?}");
    }
}

#[test]
fn an_emulated_device_takes_its_time_and_not_the_processors() {
    let rate = Rate { slots: 2, per_job: Duration::from_millis(10), ..Rate::default() };
    let device = Emulated::start("test", rate, Vec::new()).expect("a thread");
    let function = device.load("add", &add_seven()).expect("loaded");
    let began = std::time::Instant::now();
    run(&device, function, &vec![Bytes::from_static(b"x"); 8], 8);
    // Two at a time, 10 ms each; a machine that is busy takes longer.
    assert!(began.elapsed() >= Duration::from_millis(40), "{:?}", began.elapsed());
}

#[test]
fn functions_that_fail_or_panic_or_lie_are_told() {
    let device = Pool::start(&PoolConfig::new(1)).expect("threads");
    let codes = [
        Code::host(|_, _| Err(AppError("no such key".into()))),
        Code::host(|_, _| panic!("as told")),
        Code::host(|_, output| Ok(output.len() + 1)),
        Code::Host(Arc::new(|input, _| Ok(input.len() + 1)), Length::AsInput),
    ];
    let said = codes.map(|code| {
        let function = device.load("f", &code).expect("loaded");
        run(&device, function, &[Bytes::from_static(b"four")], 8).remove(0).expect_err("no answer").to_string()
    });
    let expected = [
        "no such key",
        "the function panicked",
        "an answer of 9 bytes, expected at most 8",
        "an answer of 5 bytes, expected 4",
    ];
    assert_eq!(said, expected);
    let code = Code::OpenCl(kernel("", "k", Length::Any));
    let refused = device.load("f", &code).expect_err("not on threads").to_string();
    assert_eq!(refused, "cpu can't run `f`: it was given OpenCL C, expected a function of the host");
    let (done, _completions) = unbounded();
    let region = device.register(1, 1).expect("memory");
    let job = Job { tag: 0, function: FunctionId(99), input: Bytes::new(), region, done };
    let refused = device.submit(job).expect_err("no such function");
    assert!(refused.job.is_some() && refused.reason == RefusedReason::Function(FunctionId(99)), "{refused:?}");
    assert!(device.register(MESSAGE_MAX + 1, 0).is_err());
}

#[test]
fn planted_faults_show_as_they_are() {
    let rate = Rate::default();
    let planted = |from, fault| Planted { from, count: 1, fault };
    let faults = vec![
        planted(1, Fault::Fails),
        planted(2, Fault::Length(-1)),
        planted(3, Fault::Disappears),
        planted(4, Fault::Gone),
        planted(5, Fault::Length(5)),
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
        (2, Err("an answer of 3 bytes, expected 4".into())),
        (4, Err("the device is gone".into())),
        (5, Err("an answer of 9 bytes, expected 4".into())),
        (6, Ok(4)),
    ];
    assert_eq!(came, expected);
}

#[test]
fn a_kernel_answers_as_the_host_does() {
    let Some(device) = opencl() else { return };
    let function =
        device.load("add", &Code::OpenCl(kernel(ADD_SEVEN, "add_seven", Length::AsInput))).expect("it compiles");
    assert_eq!(run(&*device, function, &inputs(), 100_000), expected(&inputs()));
    // Memory that was registered once is used again, with many jobs in flight.
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
fn kernels_that_do_not_compile_say_where() {
    let Some(device) = opencl() else { return };
    let load = |source, entry| {
        device.load("f", &Code::OpenCl(kernel(source, entry, Length::Any))).expect_err("refused").to_string()
    };
    let said = load("kernel void f(global uchar *x) {\n  x[0] = missing;\n}", "f");
    assert!(said.contains("kernel `f` does not compile") && said.contains("missing") && said.contains(":2:"), "{said}");
    let said = load(ADD_SEVEN, "sub_seven");
    assert!(said.contains("sub_seven") && said.contains("it has: add_seven"), "{said}");
    let said = load("kernel void f(global uchar *x) { }", "f\0g");
    assert!(said.contains("zero byte"), "{said}");
    assert!(device.load("f", &add_seven()).is_err());
}

#[test]
fn a_kernel_says_how_long_its_answer_is_and_has_tables() {
    let Some(device) = opencl() else { return };
    // Repeats each byte as often as the table says, from one work item.
    let source = "kernel void repeat(global const uchar *input, uint input_bytes, global uchar *output, \
                  uint output_bytes_max, global uint *output_bytes, global uchar *times) {\n\
                  if (get_global_id(0) != 0) return;\n\
                  uint at = 0;\n\
                  for (uint i = 0; i < input_bytes; i++)\n\
                    for (uint n = 0; n < times[input[i]]; n++, at++)\n\
                      if (at < output_bytes_max) output[at] = input[i];\n\
                  if (input_bytes != 9) *output_bytes = at;\n}";
    let mut kernel = kernel(source, "repeat", Length::Any);
    kernel.items = Items::Exactly(1);
    kernel.group = 1;
    kernel.tables = vec![Bytes::from((0..=255_u8).map(|byte| byte % 3).collect::<Vec<_>>())];
    let function = device.load("repeat", &Code::OpenCl(kernel)).expect("it compiles");
    let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3, 4]), Bytes::from(vec![2; 20])], 30);
    assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 4])));
    let too_long = answers[1].clone().expect_err("no room").to_string();
    assert_eq!(too_long, "an answer of 40 bytes, expected at most 30");
    device.update(function, 0, 3, &[3]).expect("a table");
    let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3]), Bytes::from(vec![0; 9])], 30);
    assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 3, 3, 3])));
    assert!(answers[1].clone().expect_err("it said none").to_string().contains("did not say"));
    assert!(device.update(function, 1, 0, &[0]).is_err() && device.update(function, 0, 255, &[0, 0]).is_err());
}

#[test]
fn a_job_is_taken_while_another_one_runs_and_a_table_is_changed() {
    let Some(device) = opencl() else { return };
    let source = "kernel void turn(global const uchar *input, uint input_bytes, global uchar *output, uint max, \
                  global uchar *table) {\n\
                  uint turned = table[0], turns = input[0] * 4000000u;\n\
                  for (uint i = 0; i < turns; i++) turned = turned * 1664525u + 1013904223u;\n\
                  output[0] = table[0];\n\
                  output[1] = turned;\n}";
    let mut kernel = kernel(source, "turn", Length::Exactly(2));
    (kernel.items, kernel.group, kernel.tables) = (Items::Exactly(1), 1, vec![Bytes::from_static(&[1])]);
    let function = device.load("turn", &Code::OpenCl(kernel)).expect("it compiles");
    // The compiler first.
    run(&*device, function, &[Bytes::from_static(&[0])], 2);
    // A machine that stands still sees too little of a short job: the next one is longer.
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
            // No event says that a thread has come to wait for a device; should it not have yet, less is seen.
            std::thread::sleep(Duration::from_millis(100));
            submit(1, 0);
            let is_changed = changes.is_finished();
            let runs = completions.is_empty();
            assert!(!(runs && is_changed), "a table was changed under a job");
            changes.join().expect("no panic").expect("a table");
            runs
        });
        submit(2, 0);
        let tables = collect(&completions, 3).into_iter().map(|answer| answer.expect("an answer")[0]);
        assert_eq!(tables.step_by(2).collect::<Vec<_>>(), [1, 2]);
        shown
    });
    assert!(shown, "each time it waited for the job before it");
}

#[test]
fn memory_of_another_device_comes_back() {
    let Some(device) = opencl() else { return };
    let pool = Pool::start(&PoolConfig::new(1)).expect("threads");
    let function =
        device.load("add", &Code::OpenCl(kernel(ADD_SEVEN, "add_seven", Length::AsInput))).expect("it compiles");
    let (done, completions) = unbounded();
    let input = Bytes::from_static(b"four");
    let region = pool.register(4, 4).expect("memory");
    let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
    let refused = device.submit(job).expect_err("another's");
    assert!(refused.reason == RefusedReason::Memory && refused.job.is_some(), "{refused:?}");
    let region = device.register(3, 4).expect("memory");
    let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
    assert_eq!(device.submit(job).expect_err("too long").reason, RefusedReason::TooLong { max: 3, got: 4 });
    let added = pool.load("add", &add_seven()).expect("loaded");
    let region = device.register(4, 4).expect("memory");
    pool.submit(Job { tag: 1, function: added, input, region, done }).expect("looked at later");
    assert!(completions.recv_timeout(LIMIT).expect("in time").result.is_err());
}
