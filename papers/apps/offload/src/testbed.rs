//! Hosts, devices and files of an application, and their runs.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use apps_load::Latencies;
use pathcall_place::context::comm::{CommFunction, InProcess};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::{Answer, Builder, ContextThread, Event, Limits, PlaceContext, RequestMessage, SendError};
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{ComputeDevice, DeviceKind, profile};
use pathcall_place::{Application, DeviceRole, Hardware, KindId, SelectionStrategy};

use crate::{AppWorkload, MessageSpec, StrategyResults, Task};

/// Time to profile a task on a device.
const PROFILE: Duration = Duration::from_millis(40);
/// Timeout of a run without answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Connection of requester and responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum HostLink {
    /// None: one context has both roles
    Itself,
    /// Two contexts of this process, each with a thread
    Process,
    /// Two contexts, and UDP over the loopback
    Udp,
}

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct AppRun {
    /// Application file.
    pub application: Application,
    /// Host of the requester.
    pub requester: Hardware,
    /// Host of the responder.
    pub responder: Hardware,
    /// Processor and accelerator, shared by both ends because they are one machine.
    pub devices: [DeviceChoice; 2],
    /// Connection of the ends.
    pub between: HostLink,
    /// Maximum number of messages in progress.
    pub window: usize,
}

/// Hosts with profiled tasks, ready to run.
#[derive(Debug)]
pub struct AppTestbed {
    plan: AppRun,
}

/// Requester, and responder if it has its own context.
struct EndContexts {
    requester: PlaceContext,
    responder: Option<PlaceContext>,
}

impl AppTestbed {
    /// Profiles each task on each device, unless the application file gives its time. Nodes get as many slots as their
    /// devices have.
    ///
    /// # Errors
    /// Returns an error if a device does not exist or does not support a task.
    pub fn new(mut plan: AppRun, workload: &dyn AppWorkload) -> Result<Self> {
        let devices = open_devices(&plan.devices)?;
        let tasks = needed_tasks(&plan.application, workload);
        for (role, device) in DeviceRole::ALL.into_iter().zip(&devices) {
            let slots = slots(&**device);
            for host in [&mut plan.requester, &mut plan.responder] {
                host.nodes.iter_mut().filter(|node| node.role == role.into()).for_each(|node| node.slots = slots);
            }
            for (at, _) in plan.application.unknown().into_iter().filter(|(_, of)| *of == role) {
                let name = &plan.application.tasks[at].name;
                // The context reports a task that is not registered, with the name of the file.
                let Some(task) = tasks.iter().find(|task| task.name == name) else { continue };
                let Some(code) = codes(task, role).iter().find(|code| code.runs_on(device.info().kind)) else {
                    continue;
                };
                let function = device.load(name, code)?;
                let measured = profile::compute(&**device, function, &task.sample, task.answer_max, PROFILE)
                    .with_context(|| format!("cannot profile task `{name}`"))?;
                plan.application.set_compute(at, role, measured.busy_ns * u64::from(slots));
            }
        }
        Ok(Self { plan })
    }

    /// Parameters, with measured times.
    #[must_use]
    pub fn plan(&self) -> &AppRun {
        &self.plan
    }

    /// Sends all messages with one strategy, and checks all answers. Wrong answers are counted.
    ///
    /// # Errors
    /// Returns an error if the context does not start, or if answers stop.
    pub fn run(&self, workload: &mut dyn AppWorkload, strategy: SelectionStrategy) -> Result<StrategyResults> {
        let EndContexts { mut requester, responder } = self.ends(workload, strategy)?;
        workload.reset(responder.as_ref().unwrap_or(&requester))?;
        let server = responder.map(PlaceContext::spawn).transpose().context("cannot start the responder's thread")?;
        let mut run = RunState::default();
        let began = Instant::now();
        run.all(&mut requester, workload, self.plan.window.max(1)).with_context(|| strategy.name())?;
        let seconds = began.elapsed().as_secs_f64();
        let own = requester.telemetry();
        let others = server.and_then(ContextThread::stop).map(|responder| responder.telemetry());
        let told = (&own, others.as_ref().unwrap_or(&own));
        Ok(StrategyResults::new(strategy, (run.operations, &run.latencies), seconds, (run.wrong, run.why), told))
    }

    fn ends(&self, workload: &dyn AppWorkload, strategy: SelectionStrategy) -> Result<EndContexts> {
        let devices = open_devices(&self.plan.devices)?;
        let end = |comm: Box<dyn FnOnce(Builder) -> Builder>| -> Result<PlaceContext> {
            Ok(comm(self.builder(&devices, workload, strategy)).init()?)
        };
        let over = |comm: InProcess| -> Box<dyn FnOnce(Builder) -> Builder> { Box::new(|b| register_comm(b, comm)) };
        Ok(match self.plan.between {
            HostLink::Itself => EndContexts { requester: end(over(InProcess::itself()))?, responder: None },
            HostLink::Process => {
                let (asks, works) = InProcess::pair();
                EndContexts { responder: Some(end(over(works))?), requester: end(over(asks))? }
            }
            HostLink::Udp => {
                let free = (Ipv4Addr::LOCALHOST, 0).into();
                let works = Remote::bind(free, None).context("cannot bind the responder's port")?;
                let asks = Remote::bind(free, Some(works.address())).context("cannot bind the requester's port")?;
                let responder = end(Box::new(|builder| register_comm(builder, works)))?;
                EndContexts {
                    responder: Some(responder),
                    requester: end(Box::new(|builder| register_comm(builder, asks)))?,
                }
            }
        })
    }

    fn builder(
        &self,
        devices: &[Arc<dyn ComputeDevice>; 2],
        workload: &dyn AppWorkload,
        strategy: SelectionStrategy,
    ) -> Builder {
        let AppRun { application, requester, responder, .. } = &self.plan;
        let builder = Builder::new(application.clone(), requester.clone(), responder.clone()).strategy(strategy);
        let mut builder = builder.limits(limits(strategy)).one_machine();
        for (role, device) in DeviceRole::ALL.into_iter().zip(devices) {
            builder = builder.device(role, Arc::clone(device));
        }
        for task in needed_tasks(application, workload) {
            for role in [DeviceRole::Cpu, DeviceRole::Acc] {
                for code in codes(&task, role) {
                    builder = builder.reg_app_func(code.clone(), task.name, role, task.answer_max);
                }
            }
            if workload.answers_alike(task.name) {
                builder = builder.sample(task.name, task.sample);
            }
        }
        if let Some(hooks) = workload.hooks() {
            builder = builder.task_hooks(hooks);
        }
        let has = |kind: &str| application.requests.iter().any(|request| request.name == kind);
        workload.next().into_iter().filter(|(kind, _)| has(kind)).fold(builder, |to, (kind, next)| to.next(kind, next))
    }
}

/// Limits of a strategy: a fixed path or a rotation must not leave a path because the path is slow.
fn limits(strategy: SelectionStrategy) -> Limits {
    let mut limits = Limits::default();
    if matches!(strategy, SelectionStrategy::AllCpu | SelectionStrategy::AllAcc | SelectionStrategy::RoundRobin) {
        (limits.select.stall_factor, limits.select.stall_ns_min) = (1 << 16, ANSWER_TIMEOUT.as_nanos() as u64);
        limits.stall = ANSWER_TIMEOUT;
    }
    limits
}

fn register_comm(builder: Builder, comm: impl CommFunction + 'static) -> Builder {
    builder.reg_comm_func(comm, "between", DeviceRole::Cpu)
}

fn open_devices(devices: &[DeviceChoice; 2]) -> Result<[Arc<dyn ComputeDevice>; 2]> {
    let [cpu, acc] = devices;
    ensure!(
        matches!(cpu, DeviceChoice::Cpu { .. } | DeviceChoice::Emulated(_)),
        "{cpu} is no processor: give cpu:THREADS"
    );
    Ok([open(cpu)?, open(acc)?])
}

/// Messages that a device processes at the same time. A device with queues accepts several but processes one.
fn slots(device: &dyn ComputeDevice) -> u32 {
    match device.info().kind {
        DeviceKind::Cpu | DeviceKind::Emulated => u32::try_from(device.info().slots).unwrap_or(u32::MAX),
        DeviceKind::OpenCl | DeviceKind::Cuda => 1,
    }
}

/// Tasks in the application file.
fn needed_tasks(application: &Application, workload: &dyn AppWorkload) -> Vec<Task> {
    let mut tasks = workload.tasks();
    tasks.retain(|task| application.tasks.iter().any(|named| named.name == task.name));
    tasks
}

fn codes(task: &Task, role: DeviceRole) -> &[pathcall_place::device::TaskCode] {
    match role {
        DeviceRole::Cpu => std::slice::from_ref(&task.cpu),
        _ => &task.acc,
    }
}

/// Results so far.
#[derive(Default)]
struct RunState {
    latencies: Latencies,
    operations: u64,
    wrong: u64,
    why: Option<String>,
}

impl RunState {
    fn all(&mut self, context: &mut PlaceContext, workload: &mut dyn AppWorkload, window: usize) -> Result<()> {
        let messages = workload.messages();
        let (mut sent, mut came) = (0, 0);
        while came < messages {
            while sent < messages && sent - came < window {
                let ask = workload.ask(sent);
                self.operations += ask.operations;
                match context.send(message(context, sent, ask)?) {
                    Ok(()) => sent += 1,
                    // The window is full: wait for answers.
                    Err(SendError::Full(_)) if sent > came => break,
                    Err(error) => return Err(error.into()),
                }
            }
            match context.wait(ANSWER_TIMEOUT) {
                Some(Event::Answer(answer)) => {
                    came += 1;
                    self.check(workload, &answer);
                }
                Some(event) => bail!("expected an answer, got {event:?}"),
                None => {
                    bail!("{came} of {messages} messages answered, then none for {} s", ANSWER_TIMEOUT.as_secs())
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, workload: &mut dyn AppWorkload, answer: &Answer) {
        self.latencies.record(Duration::from_nanos(answer.total_ns));
        let at = answer.tag as usize;
        let right = answer.result.as_ref().map_err(ToString::to_string).and_then(|bytes| workload.check(at, bytes));
        if let Err(why) = right {
            self.wrong += 1;
            self.why.get_or_insert_with(|| format!("message {at}: {why}"));
        }
    }
}

fn message(context: &PlaceContext, at: usize, ask: MessageSpec) -> Result<RequestMessage> {
    let MessageSpec { kind, address, message, payload, .. } = ask;
    let kind: KindId = context.kind(kind).with_context(|| format!("the application file has no request `{kind}`"))?;
    Ok(RequestMessage { kind, address, message, tag: at as u64, payload })
}
