//! Faulty devices, application hooks, and invalid registrations of contexts.

use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_place::context::window::HostWindow;
use pathcall_place::device::{
    Completion, DeviceError, DeviceInfo, FunctionId, Job, JobError, JobRefusal, RefusedJob, Region,
};
use pathcall_wire::Instant;

use super::*;

#[test]
fn request_refused_by_application_is_not_retried() {
    let mut context = alone(emulated(Vec::new()));
    let answers = all(&mut context, "ADD", &vec![vec![255]; 20]);
    for answer in answers {
        assert_eq!(answer.result, Err(RequestError::App(AppError("no sums of 255".into()))));
        assert_eq!(answer.attempts, 1);
    }
}

#[test]
fn disappearing_device_loses_no_request() {
    let device = emulated(vec![PlantedFault::forever(3, EmulatedFault::Disappears)]);
    let builder = builder(device, host()).limits(hasty()).strategy(Choose::RoundRobin);
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    let inputs = inputs(300);
    assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
    // Requests without a usable path are executed by the CPU.
    let answers = all(&mut context, "ACC", &inputs[..3]);
    assert_sums(&answers, &inputs[..3]);
    assert!(answers.iter().all(|answer| answer.path.is_none()), "{answers:?}");
    let telemetry = context.telemetry();
    let acc = &telemetry.devices[1];
    assert!(acc.stats.stalled > 0 && telemetry.paths[1].state.times_left > 0, "{telemetry}");
    assert!(telemetry.to_string().contains("their requests were sent again"), "{telemetry}");
    let told: Vec<_> = context.explain(3).map(|line| line.to_string()).collect();
    assert!(
        told[0].contains("executed by the CPUs: no path answered") && told[0].contains("did not answer"),
        "{}",
        told[0]
    );
}

/// Device with a custom `submit`.
struct Odd(CpuPool, fn(Job) -> Result<(), RefusedJob>);

impl std::fmt::Debug for Odd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Odd").field(&self.0).finish()
    }
}

impl ComputeDevice for Odd {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn load(&self, name: &str, code: &TaskCode) -> Result<FunctionId, DeviceError> {
        self.0.load(name, code)
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        self.0.register(input_max, output_max)
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        (self.1)(job)
    }
}

fn odd(submit: fn(Job) -> Result<(), RefusedJob>) -> Arc<dyn ComputeDevice> {
    Arc::new(Odd(CpuPool::start(&PoolConfig::new(1)).expect("threads"), submit))
}

#[test]
fn immediate_refusal_by_device_is_handled_at_once() {
    let gone = odd(|job| Err(RefusedJob { job: Some(Box::new(job)), reason: JobRefusal::Gone }));
    let text = "application: sums
tasks: { add: { cpu: 20 us, acc: 20 us } }
requests:
  ADD:
    dependency: NONE
    dataflows: [{ trips: [{ path: acc-cpu, bytes: 64 B, reply: 64 B, requester: add }] }]
";
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(Application::parse("sums.yaml", text).expect("right"), hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, gone)
        .reg_app_func(host(), "add", DeviceRole::Cpu, 0)
        .reg_app_func(host(), "add", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .init()
        .expect("context starts");
    let began = std::time::Instant::now();
    context.send(message(&context, "ADD", 0, b"x")).expect("room");
    let Some(Event::Answer(answer)) = context.wait(LIMIT) else { panic!("no event") };
    assert_eq!((answer.result, answer.path), (Ok(sum(b"x")), None));
    assert!(began.elapsed() < LIMIT, "job waited until the timeout");
}

#[test]
fn memory_lost_by_device_is_replaced() {
    let loses = odd(|Job { tag, done, .. }| {
        done.send(Completion::now(tag, None, Err(JobError::Device("it is lost".into())))).expect("room");
        Ok(())
    });
    let limits = Limits { jobs_max: 1, ..patient() };
    let builder = builder(loses, host()).limits(limits).reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu);
    let mut context = builder.init().expect("context starts");
    let inputs = inputs(20);
    let answers = all(&mut context, "ACC", &inputs);
    assert_sums(&answers, &inputs);
    let attempts: u32 = answers.iter().map(|answer| answer.attempts - 1).sum();
    let stats = context.telemetry().devices[1].stats;
    assert_eq!((stats.jobs, stats.failed), (attempts.into(), attempts.into()), "each job was submitted to the device");
}

#[test]
fn answer_longer_than_its_memory_is_an_error_of_the_device() {
    let lies = odd(|Job { tag, region, done, .. }| {
        let got = region.output_max + 1;
        done.send(Completion::now(tag, Some(region), Ok(got))).expect("room");
        Ok(())
    });
    let builder = builder(lies, host()).limits(patient());
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    let inputs = inputs(20);
    assert_sums(&all(&mut context, "ACC", &inputs), &inputs);
    let stats = context.telemetry().devices[1].stats;
    assert!(stats.failed > 0 && stats.done == 0, "{stats:?}");
}

#[test]
fn cpu_fallbacks_are_counted_beyond_explained_requests() {
    let limits = Limits { explained_max: 1, ..patient() };
    let builder = builder(emulated(vec![PlantedFault::forever(0, EmulatedFault::Fails)]), host()).limits(limits);
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    let inputs = inputs(20);
    assert_sums(&all(&mut context, "ACC", &inputs), &inputs);
    let telemetry = context.telemetry();
    assert_eq!(telemetry.paths.last().map(|path| path.run_on_cpus), Some(20), "{telemetry}");
}

#[test]
fn host_time_of_cpu_fallback_excludes_failed_attempts() {
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
    // Only the device advances the clock: by a second per job. Its answer has the right length in the first trip
    // only.
    let time = Arc::new(AtomicU64::new(0));
    let (passes, clock) = (Arc::clone(&time), move || Instant(time.load(Ordering::Acquire)));
    let slow = TaskCode::Host(
        Arc::new(move |input, output| {
            passes.fetch_add(1_000_000_000, Ordering::AcqRel);
            add(input, output).map(|bytes| bytes + usize::from(input != b"x"))
        }),
        AnswerLength::AsInput,
    );
    let hardware = || Hardware::preset(Preset::Direct);
    let mut context = Builder::new(Application::parse("sums.yaml", text).expect("right"), hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, pool())
        .reg_app_func(host(), "add", DeviceRole::Cpu, 0)
        .reg_app_func(slow, "add", DeviceRole::Acc, 0)
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .reg_ts_func(Arc::new(clock), "cpu")
        .limits(patient())
        .init()
        .expect("context starts");
    let answer = all(&mut context, "TWICE", &[b"x".to_vec()]).remove(0);
    assert_eq!((answer.result, answer.path, answer.intra_ns), (Ok(sum(&sum(b"x"))), None, Some(0)));
    assert!(answer.total_ns >= 8_000_000_000, "{}", answer.total_ns);
}

#[test]
fn recovered_device_is_used_again() {
    let faults = vec![PlantedFault { from: 10, count: 5, fault: EmulatedFault::Fails }];
    let builder = builder(emulated(faults), host()).limits(hasty());
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
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
fn invalid_registration_is_error_of_init() {
    let init_error = |builder: Builder| builder.init().expect_err("expected a rejection").to_string();
    let twice = builder(emulated(Vec::new()), host());
    let twice = twice.reg_comm_func(InProcess::itself(), "a", DeviceRole::Cpu).reg_comm_func(
        InProcess::itself(),
        "b",
        DeviceRole::Cpu,
    );
    assert_eq!(init_error(twice), "cpu has two communication functions: `b` is the second; register one");
    let devices = builder(emulated(Vec::new()), host()).device(DeviceRole::Acc, emulated(Vec::new()));
    assert_eq!(init_error(devices), "acc has two devices, `emulated (test)` and `emulated (test)`: register one");
    let unknown = builder(emulated(Vec::new()), host()).reg_app_func(host(), "sub", DeviceRole::Cpu, 0);
    assert_eq!(init_error(unknown), "`sub` is registered, but sums.yaml has no task of this name; it has: add");
    let clock = builder(emulated(Vec::new()), host()).reg_ts_func(Arc::new(|| Instant(0)), "gpu");
    assert_eq!(init_error(clock), "invalid clock `gpu`: expected `cpu` or `nic`");
    let window = Arc::new(HostWindow::new([0; 8]));
    let memory = builder(emulated(Vec::new()), host()).reg_mem_func(window, "values", DeviceRole::Acc);
    assert_eq!(
        init_error(memory),
        "memory `values` is registered for acc, but is memory of the host: register it for cpu, or a window of the \
         accelerator"
    );
    let hardware = || Hardware::preset(Preset::Direct);
    let cpu_only = Builder::new(application(), hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, emulated(Vec::new()))
        .reg_app_func(host(), "add", DeviceRole::Cpu, 0);
    let expected = "sums.yaml: `add` runs on acc, but no function is registered for it: call reg_app_func";
    assert_eq!(init_error(cpu_only), expected);
    let next = builder(emulated(Vec::new()), host()).next("SUB", Arc::new(|_, request, _| request.clone()));
    assert!(init_error(next).contains("no request type of this name; it has: ADD, ORDERED, TWICE, ACC"));
    let wrong = builder(emulated(Vec::new()), TaskCode::host(|input, output| add(&input[1..], output)));
    assert_eq!(
        init_error(wrong.sample("add", Bytes::from_static(b"four"))),
        "`add` gives another answer on emulated (test) than on the CPU: for a sample of 4 bytes, 3 and 4 bytes that differ at 0"
    );
    let sample = builder(emulated(Vec::new()), host()).sample("add", Bytes::from_static(&[255]));
    assert_eq!(init_error(sample), "sample of `add` failed: no sums of 255");
    // A missing compute time is measured.
    let text = APPLICATION.replace("add: { cpu: 20 us, acc: 20 us }", "add: { cpu: 20 us }");
    let measured = Builder::new(Application::parse("sums.yaml", &text).expect("right"), hardware(), hardware())
        .device(DeviceRole::Cpu, pool())
        .device(DeviceRole::Acc, emulated(Vec::new()))
        .reg_app_func(host(), "add", DeviceRole::Cpu, 0)
        .reg_app_func(host(), "add", DeviceRole::Acc, 0)
        .sample("add", Bytes::from_static(b"four"));
    let measured =
        measured.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    let (known, written) = (traverse_ns(measured), traverse_ns(alone(emulated(Vec::new()))));
    assert!(known >= written, "{known} ns, though a job takes 20 us; {written} ns with these in the file");
}

/// Traverse time of the accelerator's path.
fn traverse_ns(mut context: PlaceContext) -> u64 {
    let answers = all(&mut context, "ACC", &inputs(1));
    assert_sums(&answers, &inputs(1));
    let explained = context.explain(1).next().expect("a request");
    explained.record.options.iter().flatten().next().expect("the one path").traverse_ns
}

fn planted() -> impl proptest::strategy::Strategy<Value = Vec<PlantedFault>> {
    let fault = prop_oneof![
        Just(EmulatedFault::Disappears),
        Just(EmulatedFault::Gone),
        Just(EmulatedFault::Fails),
        (-70_isize..=70).prop_filter("a wrong one", |by| *by != 0).prop_map(EmulatedFault::Length),
        Just(EmulatedFault::Slow(100)),
    ];
    proptest::collection::vec((0..60_u64, 1..30_u64, fault), 0..4)
        .prop_map(|faults| faults.into_iter().map(|(from, count, fault)| PlantedFault { from, count, fault }).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Each request has one answer, equal to the CPU's, whatever the device does.
    #[test]
    fn answers_equal_cpu_answers_with_faulty_device(
        faults in planted(),
        kind in prop_oneof![Just("ADD"), Just("ORDERED"), Just("TWICE"), Just("ACC")],
        strategy in prop_oneof![Just(Choose::Leo), Just(Choose::RoundRobin), Just(Choose::AllAcc)],
    ) {
        let limits = Limits { stall: Duration::from_millis(8), ..Limits::default() };
        let builder = builder(emulated(faults), host()).strategy(strategy).limits(limits);
        let builder = builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu);
        let mut context = builder.init().expect("context starts");
        let inputs: Vec<Vec<u8>> = (0..60).map(|i| vec![i, i + 1, i + 2]).collect();
        for (answer, input) in all(&mut context, kind, &inputs).iter().zip(&inputs) {
            let once = sum(input);
            let expected = if kind == "TWICE" { sum(&sum(&once)) } else { once };
            prop_assert_eq!(&answer.result, &Ok(expected), "{:?}", answer);
        }
    }
}

/// Hooks that double the input of a task and keep its results; they reject a device's result for one byte.
#[derive(Debug, Default)]
struct Keeper(Mutex<Vec<Bytes>>);

impl TaskHooks for Keeper {
    fn before(&self, _: comm::RequestHead, request: &Bytes) -> Result<Bytes, comm::AnswerError> {
        let none = || comm::AnswerError::App(AppError("nothing came".into()));
        (!request.is_empty()).then(|| request.repeat(2).into()).ok_or_else(none)
    }

    fn after(
        &self,
        head: comm::RequestHead,
        request: &Bytes,
        made: Result<Bytes, comm::AnswerError>,
    ) -> Result<Bytes, comm::AnswerError> {
        let made = made?;
        if request.len() == 1 && head.role == DeviceRole::Acc {
            return Err(comm::AnswerError::Failed("that was wrong".into()));
        }
        self.0.lock().expect("no panic").push(made.clone());
        Ok(made.slice(..request.len()))
    }
}

#[test]
fn task_hooks_run_before_and_after_tasks() {
    let keeper = Arc::new(Keeper::default());
    let builder =
        builder(emulated(Vec::new()), host()).strategy(Choose::RoundRobin).task_hooks(Arc::clone(&keeper) as _);
    let mut context =
        builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts");
    let inputs: Vec<_> = (0..100).map(|i| vec![i as u8; 1 + i % 5]).collect();
    let answers = all(&mut context, "ADD", &inputs);
    for (answer, input) in answers.iter().zip(&inputs) {
        assert_eq!(answer.result, Ok(sum(input)));
        assert!(answer.attempts == 1 || input.len() == 1, "{answer:?}");
    }
    assert!(answers.iter().any(|answer| answer.attempts > 1), "answer of a device was rejected");
    let kept = std::mem::take(&mut *keeper.0.lock().expect("no panic"));
    assert_eq!(kept.len(), 100);
    assert!(kept.iter().all(|made| made[..made.len() / 2] == made[made.len() / 2..]));
    let refused = all(&mut context, "ADD", &[Vec::new()]).remove(0).result;
    assert_eq!(refused, Err(RequestError::App(AppError("nothing came".into()))));
}
