//! Hosts, devices and files of an application, and runs on them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use apps_load::Latencies;
use pathcall_place::context::comm::{Comm, InProcess};
use pathcall_place::context::remote::Remote;
use pathcall_place::context::{Answer, Builder, Context, Event, Limits, Message, SendError, Server};
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::{Device, Kind, profile};
use pathcall_place::{Application, Hardware, KindId, Role, Strategy};

use crate::{Ask, Outcome, Task, Workload};

/// Time that is spent on the profile of a task on a device.
const PROFILE: Duration = Duration::from_millis(40);
/// A run in which nothing is answered for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is between requester and responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Between {
    /// Nothing: one context is both
    Itself,
    /// Two contexts of this process, each with a thread
    Process,
    /// Two contexts, and UDP over the loopback
    Udp,
}

/// What is run, and on what.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The application's file.
    pub application: Application,
    /// The host that asks.
    pub requester: Hardware,
    /// The host that answers.
    pub responder: Hardware,
    /// Processor and accelerator. Both ends have the same ones: they are one machine.
    pub devices: [Choice; 2],
    /// What is between the ends.
    pub between: Between,
    /// Messages under way at a time.
    pub window: usize,
}

/// Ready to run: what tasks take is known.
#[derive(Debug)]
pub struct Bed {
    plan: Plan,
}

/// The requester, and the responder if it is another one.
struct Ends {
    requester: Context,
    responder: Option<Context>,
}

impl Bed {
    /// Measures what each task takes on each device where the application's file does not say it. Nodes get as many slots
    /// as their devices have.
    ///
    /// # Errors
    /// A device is not there, or does not do a task.
    pub fn new(mut plan: Plan, workload: &dyn Workload) -> Result<Self> {
        let devices = opened(&plan.devices)?;
        let tasks = needed(&plan.application, workload);
        for (role, device) in Role::ALL.into_iter().zip(&devices) {
            let slots = slots(&**device);
            for host in [&mut plan.requester, &mut plan.responder] {
                host.nodes.iter_mut().filter(|node| node.role == role.into()).for_each(|node| node.slots = slots);
            }
            for (at, _) in plan.application.unknown().into_iter().filter(|(_, of)| *of == role) {
                let name = &plan.application.tasks[at].name;
                // What is not registered is told by the context, with the file's name.
                let Some(task) = tasks.iter().find(|task| task.name == name) else { continue };
                let Some(code) = codes(task, role).iter().find(|code| code.runs_on(device.info().kind)) else {
                    continue;
                };
                let function = device.load(name, code)?;
                let measured = profile::compute(&**device, function, &task.sample, task.answer_max, PROFILE)
                    .with_context(|| format!("`{name}` can't be profiled"))?;
                plan.application.set_compute(at, role, measured.busy_ns * u64::from(slots));
            }
        }
        Ok(Self { plan })
    }

    /// What is run, with the times that were measured.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Sends all messages, chosen by this strategy, and checks all answers.
    ///
    /// # Errors
    /// The context does not begin; or no answer comes. Wrong answers are counted.
    pub fn run(&self, workload: &mut dyn Workload, strategy: Strategy) -> Result<Outcome> {
        let Ends { mut requester, responder } = self.ends(workload, strategy)?;
        workload.ready(responder.as_ref().unwrap_or(&requester))?;
        let server = responder.map(Context::spawn).transpose().context("no thread for the responder")?;
        let mut run = Run::default();
        let began = Instant::now();
        run.all(&mut requester, workload, self.plan.window.max(1)).with_context(|| strategy.name())?;
        let seconds = began.elapsed().as_secs_f64();
        let own = requester.telemetry();
        let others = server.and_then(Server::stop).map(|responder| responder.telemetry());
        let told = (&own, others.as_ref().unwrap_or(&own));
        Ok(Outcome::new(strategy, (run.operations, &run.latencies), seconds, (run.wrong, run.why), told))
    }

    fn ends(&self, workload: &dyn Workload, strategy: Strategy) -> Result<Ends> {
        let devices = opened(&self.plan.devices)?;
        let end = |comm: Box<dyn FnOnce(Builder) -> Builder>| -> Result<Context> {
            Ok(comm(self.builder(&devices, workload, strategy)).init()?)
        };
        let over = |comm: InProcess| -> Box<dyn FnOnce(Builder) -> Builder> { Box::new(|b| registered(b, comm)) };
        Ok(match self.plan.between {
            Between::Itself => Ends { requester: end(over(InProcess::itself()))?, responder: None },
            Between::Process => {
                let (asks, works) = InProcess::pair();
                Ends { responder: Some(end(over(works))?), requester: end(over(asks))? }
            }
            Between::Udp => {
                let free = (Ipv4Addr::LOCALHOST, 0).into();
                let works = Remote::bind(free, None).context("no port for the responder")?;
                let asks = Remote::bind(free, Some(works.address())).context("no port for the requester")?;
                let responder = end(Box::new(|builder| registered(builder, works)))?;
                Ends { responder: Some(responder), requester: end(Box::new(|builder| registered(builder, asks)))? }
            }
        })
    }

    fn builder(&self, devices: &[Arc<dyn Device>; 2], workload: &dyn Workload, strategy: Strategy) -> Builder {
        let Plan { application, requester, responder, .. } = &self.plan;
        let builder = Builder::new(application.clone(), requester.clone(), responder.clone()).strategy(strategy);
        let mut builder = builder.limits(limits(strategy)).one_machine();
        for (role, device) in Role::ALL.into_iter().zip(devices) {
            builder = builder.device(role, Arc::clone(device));
        }
        for task in needed(application, workload) {
            for role in Role::ALL {
                for code in codes(&task, role) {
                    builder = builder.reg_app_func(code.clone(), task.name, role, task.answer_max);
                }
            }
            if workload.alike(task.name) {
                builder = builder.sample(task.name, task.sample);
            }
        }
        if let Some(around) = workload.around() {
            builder = builder.around(around);
        }
        let has = |kind: &str| application.requests.iter().any(|request| request.name == kind);
        workload.next().into_iter().filter(|(kind, _)| has(kind)).fold(builder, |to, (kind, next)| to.next(kind, next))
    }
}

/// One path for all is not left because it is slow, for that would be two paths; nor are those that take turns.
fn limits(strategy: Strategy) -> Limits {
    let mut limits = Limits::default();
    if matches!(strategy, Strategy::AllCpu | Strategy::AllAcc | Strategy::RoundRobin) {
        (limits.select.stall_factor, limits.select.stall_ns_min) = (1 << 16, PATIENCE.as_nanos() as u64);
        limits.stall = PATIENCE;
    }
    limits
}

fn registered(builder: Builder, comm: impl Comm + 'static) -> Builder {
    builder.reg_comm_func(comm, "between", Role::Cpu)
}

fn opened(devices: &[Choice; 2]) -> Result<[Arc<dyn Device>; 2]> {
    let [cpu, acc] = devices;
    ensure!(matches!(cpu, Choice::Cpu { .. } | Choice::Emulated(_)), "{cpu} is no processor: give cpu:THREADS");
    Ok([open(cpu)?, open(acc)?])
}

/// Messages that a device really works on at the same time. Devices with queues take several and do one after the other.
fn slots(device: &dyn Device) -> u32 {
    match device.info().kind {
        Kind::Cpu | Kind::Emulated => u32::try_from(device.info().slots).unwrap_or(u32::MAX),
        Kind::OpenCl | Kind::Cuda => 1,
    }
}

/// Tasks that the application's file has.
fn needed(application: &Application, workload: &dyn Workload) -> Vec<Task> {
    let mut tasks = workload.tasks();
    tasks.retain(|task| application.tasks.iter().any(|named| named.name == task.name));
    tasks
}

fn codes(task: &Task, role: Role) -> &[pathcall_place::device::Code] {
    match role {
        Role::Cpu => std::slice::from_ref(&task.cpu),
        Role::Acc => &task.acc,
    }
}

/// What came so far.
#[derive(Default)]
struct Run {
    latencies: Latencies,
    operations: u64,
    wrong: u64,
    why: Option<String>,
}

impl Run {
    fn all(&mut self, context: &mut Context, workload: &mut dyn Workload, window: usize) -> Result<()> {
        let messages = workload.messages();
        let (mut sent, mut came) = (0, 0);
        while came < messages {
            while sent < messages && sent - came < window {
                let ask = workload.ask(sent);
                self.operations += ask.operations;
                match context.send(message(context, sent, ask)?) {
                    Ok(()) => sent += 1,
                    // Answers make room.
                    Err(SendError::Full(_)) if sent > came => break,
                    Err(error) => return Err(error.into()),
                }
            }
            match context.wait(PATIENCE) {
                Some(Event::Answer(answer)) => {
                    came += 1;
                    self.check(workload, &answer);
                }
                Some(event) => bail!("expected an answer, got {event:?}"),
                None => bail!("{came} of {messages} messages were answered, then none for {} s", PATIENCE.as_secs()),
            }
        }
        Ok(())
    }

    fn check(&mut self, workload: &mut dyn Workload, answer: &Answer) {
        self.latencies.record(Duration::from_nanos(answer.total_ns));
        let at = answer.tag as usize;
        let right = answer.result.as_ref().map_err(ToString::to_string).and_then(|bytes| workload.check(at, bytes));
        if let Err(why) = right {
            self.wrong += 1;
            self.why.get_or_insert_with(|| format!("message {at}: {why}"));
        }
    }
}

fn message(context: &Context, at: usize, ask: Ask) -> Result<Message> {
    let Ask { kind, address, message, payload, .. } = ask;
    let kind: KindId = context.kind(kind).with_context(|| format!("the application's file has no request `{kind}`"))?;
    Ok(Message { kind, address, message, tag: at as u64, payload })
}
