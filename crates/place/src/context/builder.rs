//! How a context is made: what is registered, and what it all comes to.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::Receiver;
use pathcall_wire::Instant;

use super::bench::{Bench, Task};
use super::comm::{Arrivals, Comm, Head, Inbox, ReplyTo, Start, TsFn};
use super::error::InitError;
use super::held::Entries;
use super::load::{load, nexts, try_out};
use super::telemetry::Records;
use super::window::{WINDOWS_MAX, Window, Windows};
use super::{Around, Event};
use crate::Role;
use crate::device::{Code, Device};
use crate::model::{Application, Hardware, Trip};
use crate::path::{KindId, PathId, Paths};
use crate::select::{Config, Selector, Strategy};

/// What a requester sends next, in a dataflow of several trips: from the number of the trip, the request and the last
/// trip's answer.
pub type NextFn = Arc<dyn Fn(usize, &Bytes, &Bytes) -> Bytes + Send + Sync>;

/// Bounds of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the selector.
    pub select: Config,
    /// Jobs that one device has at the same time.
    pub jobs_max: usize,
    /// A job that an accelerator does not answer within this time, and within a hundred times what the model says, has
    /// failed; those before it are given theirs, too.
    pub stall: Duration,
    /// Requests of the past that are explained.
    pub explained_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { select: Config::default(), jobs_max: 1024, stall: Duration::from_millis(100), explained_max: 1024 }
    }
}

/// Whose job it is.
#[derive(Debug)]
pub(super) enum Owner {
    /// A request of this side, before a trip.
    Request { id: u64 },
    /// One of the other side.
    Reply { reply: ReplyTo, at: Instant, request: Option<Box<(Head, Bytes)>> },
}

/// The trips of each path.
#[derive(Debug)]
pub(super) struct Flows {
    by_path: Vec<Arc<[Trip]>>,
    /// By type of request: what the CPUs do when all else fails.
    by_kind: Vec<Arc<[Trip]>>,
}

impl Flows {
    fn new(application: &Application) -> Self {
        let flows = |request: &crate::model::RequestType| -> Vec<Arc<[Trip]>> {
            request.dataflows.iter().map(|flow| flow.trips.clone().into()).collect()
        };
        let by_kind: Vec<_> = application.requests.iter().map(flows).collect();
        Self { by_kind: by_kind.iter().map(|flows| Arc::clone(&flows[0])).collect(), by_path: by_kind.concat() }
    }

    fn of(&self, kind: KindId, path: Option<PathId>) -> &[Trip] {
        match path {
            Some(path) => &self.by_path[usize::from(path.0)],
            None => &self.by_kind[usize::from(kind.0)],
        }
    }

    pub(super) fn trip(&self, kind: KindId, path: Option<PathId>, trip: u8) -> &Trip {
        &self.of(kind, path)[usize::from(trip)]
    }

    pub(super) fn trips(&self, kind: KindId, path: Option<PathId>) -> usize {
        self.of(kind, path).len()
    }
}

/// Either end of an application, or both. Belongs to one thread.
pub struct Context {
    pub(super) application: Application,
    pub(super) paths: Paths,
    pub(super) flows: Flows,
    pub(super) selector: Selector,
    pub(super) limits: Limits,
    pub(super) entries: Entries,
    pub(super) next: Vec<Option<NextFn>>,
    /// By task and role.
    pub(super) tasks: Vec<[Option<Task>; 2]>,
    pub(super) benches: [Option<Bench<Owner>>; 2],
    pub(super) comms: [Option<Box<dyn Comm>>; 2],
    /// For roles that have none of their own.
    pub(super) spare_comm: Option<Box<dyn Comm>>,
    pub(super) arrivals: Arrivals,
    /// So that one without a communication function waits, too.
    _inbox: Inbox,
    pub(super) accesses: HashMap<u64, u64>,
    pub(super) accessed: u64,
    pub(super) events: VecDeque<Event>,
    /// When it took what had come.
    pub(super) turned: Instant,
    pub(super) cpu_clock: TsFn,
    pub(super) nic_clock: TsFn,
    pub(super) telemetry: Records,
    pub(super) handles_itself: bool,
    pub(super) around: Option<Arc<dyn Around>>,
    pub(super) stop: Option<Receiver<()>>,
    #[cfg(unix)]
    pub(super) door: Option<super::door::Answering>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("application", &self.application.name).field("held", &self.held()).finish()
    }
}

/// Registers what a context needs (LEO Table II).
pub struct Builder {
    application: Application,
    requester: Hardware,
    responder: Hardware,
    strategy: Strategy,
    limits: Limits,
    comms: [Option<(String, Box<dyn Comm>)>; 2],
    windows: Windows,
    clocks: HashMap<String, TsFn>,
    functions: Vec<(String, Role, Code, usize)>,
    devices: [Option<Arc<dyn Device>>; 2],
    next: Vec<(String, NextFn)>,
    samples: Vec<(String, Bytes)>,
    handles_itself: bool,
    around: Option<Arc<dyn Around>>,
    one_machine: bool,
    #[cfg(unix)]
    door: Option<std::path::PathBuf>,
    wrong: Option<String>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("application", &self.application.name).finish_non_exhaustive()
    }
}

impl Builder {
    /// For an application between two hosts of that hardware.
    #[must_use]
    pub fn new(application: Application, requester: Hardware, responder: Hardware) -> Self {
        Self {
            application,
            requester,
            responder,
            strategy: Strategy::Leo,
            limits: Limits::default(),
            comms: [None, None],
            windows: Windows::default(),
            clocks: HashMap::new(),
            functions: Vec::new(),
            devices: [None, None],
            next: Vec::new(),
            samples: Vec::new(),
            handles_itself: true,
            around: None,
            one_machine: false,
            #[cfg(unix)]
            door: None,
            wrong: None,
        }
    }

    /// How paths are chosen.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Its bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Which device has a role.
    #[must_use]
    pub fn device(mut self, role: Role, device: Arc<dyn Device>) -> Self {
        self.devices[role as usize] = Some(device);
        self
    }

    /// Registers what carries messages to that role of the other side; the CPU's carries those that have none.
    #[must_use]
    pub fn reg_comm_func(mut self, comm: impl Comm + 'static, name: &str, role: Role) -> Self {
        if self.comms[role as usize].replace((name.into(), Box::new(comm))).is_some() {
            self.wrong = Some(format!("{role} has two communication functions: `{name}` is the second"));
        }
        self
    }

    /// Registers memory that the other side may read and write under that name: the processor's. Memory of accelerators
    /// can't be reached from outside, and is refused when the context begins: their tables are registered with kernels.
    #[must_use]
    pub fn reg_mem_func(mut self, memory: Arc<dyn Window>, name: &str, role: Role) -> Self {
        if role != Role::Cpu {
            let instead = "register the processor's memory, or a kernel's tables with `reg_app_func`";
            self.wrong =
                Some(format!("the memory `{name}` is registered for {role}, where none can be reached: {instead}"));
        }
        if self.windows.0.insert(name.into(), memory).is_some() {
            self.wrong = Some(format!("two memories are registered as `{name}`"));
        }
        self
    }

    /// Registers a clock: `cpu` for t1, t4 and t6; `nic` for t2, t3 and t5, if the network card has one of its own that
    /// goes with it. Nanoseconds of the same origin, never back.
    #[must_use]
    pub fn reg_ts_func(mut self, clock: TsFn, name: &str) -> Self {
        if !["cpu", "nic"].contains(&name) {
            self.wrong = Some(format!("a clock is registered as `{name}`: expected `cpu` or `nic`"));
        }
        self.clocks.insert(name.into(), clock);
        self
    }

    /// Registers what a task of the application does on a role: several for one role where its device may be of several
    /// kinds; the first that the device can run is taken. `answer_max`: bytes of an answer, if they may be more than
    /// the request's.
    #[must_use]
    pub fn reg_app_func(mut self, code: Code, name: &str, role: Role, answer_max: usize) -> Self {
        self.functions.push((name.into(), role, code, answer_max));
        self
    }

    /// Says what the next trip's message is, for a type of request whose dataflows have several; it is the answer to the
    /// last otherwise.
    #[must_use]
    pub fn next(mut self, kind: &str, next: NextFn) -> Self {
        self.next.push((kind.into(), next));
        self
    }

    /// A request as a task gets it. At the start both roles work on it, and must give the same; where the application's
    /// file has no compute time, what is measured with it takes its place.
    #[must_use]
    pub fn sample(mut self, task: &str, request: Bytes) -> Self {
        self.samples.push((task.into(), request));
        self
    }

    /// Whether requests that come are handled at once by what is registered, on the role that they name, as they are
    /// unless this is said; or else given out as [`Event::Request`].
    #[must_use]
    pub fn handles_itself(mut self, itself: bool) -> Self {
        self.handles_itself = itself;
        self
    }

    /// What is done with requests that come besides the tasks of devices.
    #[must_use]
    pub fn around(mut self, around: Arc<dyn Around>) -> Self {
        self.around = Some(around);
        self
    }

    /// Requester and responder are one machine: the same processor, and the same accelerator, do what either has to do.
    #[must_use]
    pub fn one_machine(mut self) -> Self {
        self.one_machine = true;
        self
    }

    /// Says on this socket, a new file, where requests went and why: to `pathcall place explain`.
    #[cfg(unix)]
    #[must_use]
    pub fn door(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.door = Some(path.into());
        self
    }

    /// Loads functions, tries them where there are samples, begins to communicate.
    ///
    /// # Errors
    /// [`InitError`]: one line that says what is wrong and what to do.
    pub fn init(self) -> Result<Context, InitError> {
        let Self {
            mut application, requester, responder, strategy, limits, windows, clocks, functions, devices, ..
        } = self;
        if let Some(wrong) = self.wrong {
            return Err(InitError::Registered(wrong));
        }
        if windows.0.len() > WINDOWS_MAX {
            return Err(InitError::Registered(format!("more than {WINDOWS_MAX} memories are registered")));
        }
        let tasks = load(&application, &devices, &functions)?;
        for (name, request) in &self.samples {
            try_out(&mut application, &devices, &tasks, name, request)?;
        }
        let laid = if self.one_machine { Paths::of_machine } else { Paths::of };
        let mut paths = laid(&requester, &responder, &application)?;
        let next = nexts(&application, self.next)?;
        let ordered = self.comms.iter().flatten().all(|(_, comm)| comm.is_ordered());
        let flows = Flows::new(&application);
        let one_by_one = |role: Role| {
            // An accelerator may fail one job and not the next, which must not overtake it.
            role == Role::Cpu && devices[role as usize].as_ref().is_none_or(|device| device.info().in_order)
        };
        for (path, trips) in paths.paths.iter_mut().zip(&flows.by_path) {
            // What the hardware's model can't know.
            let mut ends = trips.iter().flat_map(|trip| [trip.requester, trip.responder]);
            path.fifo &= ordered && ends.all(|end| one_by_one(end.role));
        }
        let selector = Selector::new(&paths, strategy, limits.select);
        let origin = Clock::now();
        let cpu_clock = clocks.get("cpu").cloned().unwrap_or_else(|| {
            Arc::new(move || Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)))
        });
        let nic_clock = clocks.get("nic").cloned().unwrap_or_else(|| Arc::clone(&cpu_clock));
        let (inbox, arrivals) = Inbox::new();
        let windows = Arc::new(windows);
        let mut comms = [None, None];
        for (role, comm) in self.comms.into_iter().enumerate() {
            let Some((name, mut comm)) = comm else { continue };
            let start = Start { inbox: inbox.clone(), windows: Arc::clone(&windows), clock: Arc::clone(&nic_clock) };
            comm.start(start).map_err(|reason| InitError::Comm { name, reason })?;
            comms[role] = Some(comm);
        }
        // What goes to a role without one of its own goes with the other's.
        let spare_comm = match &mut comms {
            [Some(_), Some(_)] => None,
            [one, other] => one.take().or(other.take()),
        };
        let slowest = application.tasks.iter().filter_map(|task| task.compute_ns[Role::Acc as usize]).max();
        let stall = limits.stall.max(Duration::from_nanos(slowest.unwrap_or(0).saturating_mul(100)));
        let bench = |role: Role, device: Option<Arc<dyn Device>>| {
            let stall = (role == Role::Acc).then_some(stall);
            device.map(|device| Bench::new(device, role, limits.jobs_max, stall))
        };
        let [cpu, acc] = devices;
        #[cfg(unix)]
        let door = match self.door {
            Some(path) => Some(
                super::door::Answering::open(&path)
                    .map_err(|error| InitError::Registered(format!("no door at {}: {error}", path.display())))?,
            ),
            None => None,
        };
        let telemetry = Records::new(&paths, limits.explained_max);
        Ok(Context {
            flows,
            benches: [bench(Role::Cpu, cpu), bench(Role::Acc, acc)],
            entries: Entries::new(limits.select.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX) as usize),
            limits,
            application,
            paths,
            selector,
            next,
            tasks,
            comms,
            spare_comm,
            arrivals,
            _inbox: inbox,
            accesses: HashMap::new(),
            accessed: 0,
            events: VecDeque::new(),
            turned: Instant(0),
            cpu_clock,
            nic_clock,
            telemetry,
            handles_itself: self.handles_itself,
            around: self.around,
            stop: None,
            #[cfg(unix)]
            door,
        })
    }
}
