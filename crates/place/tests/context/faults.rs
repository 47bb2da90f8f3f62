//! Devices that do wrong, and mistakes of those who set contexts up.

use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_place::context::window::HostWindow;
use pathcall_place::device::{
    Completion, DeviceError, FunctionId, Info, Job, JobError, Refused, RefusedReason, Region,
};
use pathcall_wire::Instant;

use super::*;

#[test]
fn what_the_application_refuses_is_not_sent_again() {
    let mut context = alone(emulated(Vec::new()));
    let answers = all(&mut context, "ADD", &vec![vec![255]; 20]);
    for answer in answers {
        assert_eq!(answer.result, Err(Failure::App(AppError("no sums of 255".into()))));
        assert_eq!(answer.attempts, 1);
    }
}

#[test]
fn a_device_that_disappears_loses_no_request() {
    let device = emulated(vec![Planted::forever(3, Wrong::Disappears)]);
    let builder = builder(device, host()).limits(hasty()).strategy(Choose::RoundRobin);
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    let inputs = inputs(300);
    assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
    // Also where no path is left: the CPU does it.
    let answers = all(&mut context, "ACC", &inputs[..3]);
    assert_sums(&answers, &inputs[..3]);
    assert!(answers.iter().all(|answer| answer.path.is_none()), "{answers:?}");
    let telemetry = context.telemetry();
    let acc = &telemetry.devices[1];
    assert!(acc.stats.stalled > 0 && telemetry.paths[1].state.lefts > 0, "{telemetry}");
    assert!(telemetry.to_string().contains("their requests were sent again"), "{telemetry}");
    let told: Vec<_> = context.explain(3).map(|line| line.to_string()).collect();
    assert!(told[0].contains("by the CPUs, as no path answered") && told[0].contains("did not answer"), "{}", told[0]);
}

/// A device that does with jobs what it is told.
struct Odd(Pool, fn(Job) -> Result<(), Refused>);

impl std::fmt::Debug for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Odd").field(&self.0).finish()
    }
}

impl Device for Odd {
    fn info(&self) -> &Info {
        self.0.info()
    }

    fn load(&self, name: &str, code: &Code) -> Result<FunctionId, DeviceError> {
        self.0.load(name, code)
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        self.0.register(input_max, output_max)
    }

    fn submit(&self, job: Job) -> Result<(), Refused> {
        (self.1)(job)
    }
}

fn odd(submit: fn(Job) -> Result<(), Refused>) -> Arc<dyn Device> {
    Arc::new(Odd(Pool::start(&PoolConfig::new(1)).expect("threads"), submit))
}

#[test]
fn what_a_device_refuses_at_once_is_not_waited_for() {
    let gone = odd(|job| Err(Refused { job: Some(Box::new(job)), reason: RefusedReason::Gone }));
    let text = "application: sums
tasks: { add: { cpu: 20 us, acc: 20 us } }
requests:
  ADD:
    dependency: NONE
    dataflows: [{ trips: [{ path: acc-cpu, bytes: 64 B, reply: 64 B, requester: add }] }]
";
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(Application::parse("sums.yaml", text).expect("right"), hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, gone)
        .reg_app_func(host(), "add", Role::Cpu, 0)
        .reg_app_func(host(), "add", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .init()
        .expect("it begins");
    let began = std::time::Instant::now();
    context.send(message(&context, "ADD", 0, b"x")).expect("room");
    let Some(Event::Answer(answer)) = context.wait(LIMIT) else { panic!("nothing came") };
    assert_eq!((answer.result, answer.path), (Ok(sum(b"x")), None));
    assert!(began.elapsed() < LIMIT, "it lay there until the time was over");
}

#[test]
fn memory_that_a_device_loses_makes_room() {
    let loses = odd(|Job { tag, done, .. }| {
        done.send(Completion::now(tag, None, Err(JobError::Device("it is lost".into())))).expect("room");
        Ok(())
    });
    let limits = Limits { jobs_max: 1, ..patient() };
    let builder = builder(loses, host()).limits(limits).reg_comm_func(InProcess::itself(), "itself", Role::Cpu);
    let mut context = builder.init().expect("it begins");
    let inputs = inputs(20);
    let answers = all(&mut context, "ACC", &inputs);
    assert_sums(&answers, &inputs);
    let attempts: u32 = answers.iter().map(|answer| answer.attempts - 1).sum();
    let stats = context.telemetry().devices[1].stats;
    assert_eq!((stats.jobs, stats.failed), (attempts.into(), attempts.into()), "each was given to the device");
}

#[test]
fn what_the_cpus_do_instead_counts_whether_it_is_explained_or_not() {
    let limits = Limits { explained_max: 1, ..patient() };
    let builder = builder(emulated(vec![Planted::forever(0, Wrong::Fails)]), host()).limits(limits);
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    let inputs = inputs(20);
    assert_sums(&all(&mut context, "ACC", &inputs), &inputs);
    let telemetry = context.telemetry();
    assert_eq!(telemetry.paths.last().map(|path| path.resorted), Some(20), "{telemetry}");
}

#[test]
fn what_failed_before_is_no_time_of_what_the_cpus_do_instead() {
    let text = "application: sums
tasks: { add: { cpu: 20 us, acc: 20 us } }
requests:
  TWICE:
    dependency: NONE
    dataflows:
      - trips:
          - { path: acc-cpu, bytes: 64 B, reply: 64 B, requester: add }
          - { path: acc-cpu, bytes: 64 B, reply: 64 B, requester: add }
";
    // Only the device's time passes: a second for what it does, which is right for the first trip alone.
    let time = Arc::new(AtomicU64::new(0));
    let (passes, clock) = (Arc::clone(&time), move || Instant(time.load(Ordering::Acquire)));
    let slow = Code::Host(
        Arc::new(move |input, output| {
            passes.fetch_add(1_000_000_000, Ordering::AcqRel);
            add(input, output).map(|bytes| bytes + usize::from(input != b"x"))
        }),
        Length::AsInput,
    );
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(Application::parse("sums.yaml", text).expect("right"), hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, pool())
        .reg_app_func(host(), "add", Role::Cpu, 0)
        .reg_app_func(slow, "add", Role::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", Role::Cpu)
        .reg_ts_func(Arc::new(clock), "cpu")
        .limits(patient())
        .init()
        .expect("it begins");
    let answer = all(&mut context, "TWICE", &[b"x".to_vec()]).remove(0);
    assert_eq!((answer.result, answer.path, answer.intra_ns), (Ok(sum(&sum(b"x"))), None, Some(0)));
    assert!(answer.total_ns >= 8_000_000_000, "{}", answer.total_ns);
}

#[test]
fn a_device_that_comes_back_is_used_again() {
    let faults = vec![Planted { from: 10, count: 5, fault: Wrong::Fails }];
    let builder = builder(emulated(faults), host()).limits(hasty());
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    let inputs = inputs(500);
    let began = std::time::Instant::now();
    loop {
        assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
        let telemetry = context.telemetry();
        let acc = &telemetry.paths[1].state;
        if acc.failed >= 1 && acc.probes > 0 && acc.done > 20 && acc.left_until.is_none() {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{telemetry}");
    }
}

#[test]
fn mistakes_are_told_before_anything_begins() {
    let said = |builder: Builder| builder.init().expect_err("refused").to_string();
    let twice = builder(emulated(Vec::new()), host());
    let twice =
        twice.reg_comm_func(InProcess::itself(), "a", Role::Cpu).reg_comm_func(InProcess::itself(), "b", Role::Cpu);
    assert_eq!(said(twice), "cpu has two communication functions: `b` is the second");
    let unknown = builder(emulated(Vec::new()), host()).reg_app_func(host(), "sub", Role::Cpu, 0);
    assert_eq!(said(unknown), "`sub` is registered, and sums.yaml has no task of that name; it has: add");
    let clock = builder(emulated(Vec::new()), host()).reg_ts_func(Arc::new(|| Instant(0)), "gpu");
    assert_eq!(said(clock), "a clock is registered as `gpu`: expected `cpu` or `nic`");
    let window = Arc::new(HostWindow::new([0; 8]));
    let memory = builder(emulated(Vec::new()), host()).reg_mem_func(window, "values", Role::Acc);
    assert_eq!(
        said(memory),
        "the memory `values` is registered for acc, where none can be reached: register the processor's memory, or a \
         kernel's tables with `reg_app_func`"
    );
    let hardware = || Hardware::preset(Preset::Direct);
    let cpu_only = Builder::new(application(), hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, emulated(Vec::new()))
        .reg_app_func(host(), "add", Role::Cpu, 0);
    let expected = "sums.yaml: `add` runs on acc, and nothing is registered for it: call reg_app_func";
    assert_eq!(said(cpu_only), expected);
    let next = builder(emulated(Vec::new()), host()).next("SUB", Arc::new(|_, request, _| request.clone()));
    assert!(said(next).contains("no type of request of that name; it has: ADD, ORDERED, TWICE, ACC"));
    let wrong = builder(emulated(Vec::new()), Code::host(|input, output| add(&input[1..], output)));
    assert_eq!(
        said(wrong.sample("add", Bytes::from_static(b"four"))),
        "`add` gives another answer on emulated (test) than on the CPU: for a sample of 4 bytes, 3 and 4 bytes that differ at 0"
    );
    let sample = builder(emulated(Vec::new()), host()).sample("add", Bytes::from_static(&[255]));
    assert_eq!(said(sample), "the sample of `add` fails: no sums of 255");
    // A compute time that the file lacks is measured.
    let text = APPLICATION.replace("add: { cpu: 20 us, acc: 20 us }", "add: { cpu: 20 us }");
    let measured = Builder::new(Application::parse("sums.yaml", &text).expect("right"), hardware(), hardware())
        .device(Role::Cpu, pool())
        .device(Role::Acc, emulated(Vec::new()))
        .reg_app_func(host(), "add", Role::Cpu, 0)
        .reg_app_func(host(), "add", Role::Acc, 0)
        .sample("add", Bytes::from_static(b"four"));
    let measured = measured.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    let (known, written) = (traverse_ns(measured), traverse_ns(alone(emulated(Vec::new()))));
    assert!(known >= written, "{known} ns, though a job takes 20 us; {written} ns with these in the file");
}

/// Time of the accelerator's path through empty hosts, as it is reckoned with.
fn traverse_ns(mut context: Context) -> u64 {
    let answers = all(&mut context, "ACC", &inputs(1));
    assert_sums(&answers, &inputs(1));
    let explained = context.explain(1).next().expect("a request");
    explained.record.options.iter().flatten().next().expect("the one path").traverse_ns
}

fn planted() -> impl proptest::strategy::Strategy<Value = Vec<Planted>> {
    let fault = prop_oneof![
        Just(Wrong::Disappears),
        Just(Wrong::Gone),
        Just(Wrong::Fails),
        (-70_isize..=70).prop_filter("a wrong one", |by| *by != 0).prop_map(Wrong::Length),
        Just(Wrong::Slow(100)),
    ];
    proptest::collection::vec((0..60_u64, 1..30_u64, fault), 0..4)
        .prop_map(|faults| faults.into_iter().map(|(from, count, fault)| Planted { from, count, fault }).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever a device does wrong, each request has one answer, which is the CPU's.
    #[test]
    fn answers_are_the_cpus_whatever_a_device_does(
        faults in planted(),
        kind in prop_oneof![Just("ADD"), Just("ORDERED"), Just("TWICE"), Just("ACC")],
        strategy in prop_oneof![Just(Choose::Leo), Just(Choose::RoundRobin), Just(Choose::AllAcc)],
    ) {
        let limits = Limits { stall: Duration::from_millis(8), ..Limits::default() };
        let builder = builder(emulated(faults), host()).strategy(strategy).limits(limits);
        let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
        let inputs: Vec<Vec<u8>> = (0..60).map(|i| vec![i, i + 1, i + 2]).collect();
        for (answer, input) in all(&mut context, kind, &inputs).iter().zip(&inputs) {
            let once = sum(input);
            let expected = if kind == "TWICE" { sum(&sum(&once)) } else { once };
            prop_assert_eq!(&answer.result, &Ok(expected), "{:?}", answer);
        }
    }
}

/// Has tasks work on what came twice over, and keeps what they make; refuses what a device makes of one byte.
#[derive(Debug, Default)]
struct Keeper(Mutex<Vec<Bytes>>);

impl Around for Keeper {
    fn before(&self, _: comm::Head, request: &Bytes) -> Result<Bytes, comm::Fault> {
        let none = || comm::Fault::App(AppError("nothing came".into()));
        (!request.is_empty()).then(|| request.repeat(2).into()).ok_or_else(none)
    }

    fn after(&self, head: comm::Head, request: &Bytes, made: Result<Bytes, comm::Fault>) -> Result<Bytes, comm::Fault> {
        let made = made?;
        if request.len() == 1 && head.role == Role::Acc {
            return Err(comm::Fault::Failed("that was wrong".into()));
        }
        self.0.lock().expect("no panic").push(made.clone());
        Ok(made.slice(..request.len()))
    }
}

#[test]
fn applications_work_around_tasks() {
    let keeper = Arc::new(Keeper::default());
    let builder = builder(emulated(Vec::new()), host()).strategy(Choose::RoundRobin).around(Arc::clone(&keeper) as _);
    let mut context = builder.reg_comm_func(InProcess::itself(), "itself", Role::Cpu).init().expect("it begins");
    let inputs: Vec<_> = (0..100).map(|i| vec![i as u8; 1 + i % 5]).collect();
    let answers = all(&mut context, "ADD", &inputs);
    for (answer, input) in answers.iter().zip(&inputs) {
        assert_eq!(answer.result, Ok(sum(input)));
        assert!(answer.attempts == 1 || input.len() == 1, "{answer:?}");
    }
    assert!(answers.iter().any(|answer| answer.attempts > 1), "a device's answer was refused");
    let kept = std::mem::take(&mut *keeper.0.lock().expect("no panic"));
    assert_eq!(kept.len(), 100);
    assert!(kept.iter().all(|made| made[..made.len() / 2] == made[made.len() / 2..]));
    let refused = all(&mut context, "ADD", &[Vec::new()]).remove(0).result;
    assert_eq!(refused, Err(Failure::App(AppError("nothing came".into()))));
}
