//! Builder of a context: registration, checks and start.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use crossbeam_channel::Receiver;
use pathcall_wire::Instant;

use super::comm::{CommFunction, CommStart, Inbox, InboxReceivers, ReplyTo, RequestHead, TsFn};
use super::device_queue::{DeviceQueue, LoadedTask};
use super::error::InitError;
use super::load::{check_sample, check_window_role, load, next_functions};
use super::path_trips::PathTrips;
use super::pending::PendingRequests;
use super::telemetry::TelemetryState;
use super::window::{MemoryWindow, WINDOWS_MAX, Windows};
use super::{Event, TaskHooks};
use crate::DeviceRole;
use crate::device::{ComputeDevice, TaskCode};
use crate::model::{Application, Hardware};
use crate::path::Paths;
use crate::select::{Config, SelectionStrategy, Selector};

/// Function that makes the request of the next trip in a dataflow with several trips, from the trip's number, the
/// request and the previous trip's answer.
pub type NextFn = Arc<dyn Fn(usize, &Bytes, &Bytes) -> Bytes + Send + Sync>;

/// Limits of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Limits of the selector.
    pub select: Config,
    /// Number of jobs that one device may have at the same time.
    pub jobs_max: usize,
    /// Timeout of a job at an accelerator; at least a hundred times the modelled time. Jobs before it get their time,
    /// too.
    pub stall: Duration,
    /// Number of past requests that can be explained.
    pub explained_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { select: Config::default(), jobs_max: 1024, stall: Duration::from_millis(100), explained_max: 1024 }
    }
}

/// All roles, for slices of them.
static ALL_ROLES: [DeviceRole; ROLES] = DeviceRole::ALL;
/// Number of roles.
pub(super) const ROLES: usize = DeviceRole::ALL.len();

/// Owner of a job.
#[derive(Debug)]
pub(super) enum JobOwner {
    /// Request of this side, before a trip.
    Request { id: u64 },
    /// Request of the other side.
    Reply { reply: ReplyTo, at: Instant, request: Option<Box<(RequestHead, Bytes)>> },
}

/// Requester, responder, or both. Belongs to one thread.
pub struct PlaceContext {
    pub(super) application: Application,
    pub(super) paths: Paths,
    pub(super) flows: PathTrips,
    pub(super) selector: Selector,
    pub(super) limits: Limits,
    pub(super) entries: PendingRequests,
    pub(super) next: Vec<Option<NextFn>>,
    /// By task and role.
    pub(super) tasks: Vec<[Option<LoadedTask>; ROLES]>,
    pub(super) queues: [Option<DeviceQueue<JobOwner>>; ROLES],
    /// Roles with a device, and those between them.
    pub(super) roles: &'static [DeviceRole],
    pub(super) comms: [Option<Box<dyn CommFunction>>; ROLES],
    pub(super) arrivals: InboxReceivers,
    /// Keeps the channel open, so that a context without a communication function can wait.
    _inbox: Inbox,
    pub(super) accesses: HashMap<u64, u64>,
    pub(super) accessed: u64,
    /// Memory of the other side that this process can access itself.
    pub(super) attached: Windows,
    pub(super) events: VecDeque<Event>,
    /// Time at which arrivals were last processed.
    pub(super) polled_at: Instant,
    pub(super) cpu_clock: TsFn,
    pub(super) nic_clock: TsFn,
    pub(super) telemetry: TelemetryState,
    pub(super) handles_itself: bool,
    pub(super) hooks: Option<Arc<dyn TaskHooks>>,
    pub(super) stop: Option<Receiver<()>>,
    #[cfg(unix)]
    pub(super) admin_socket: Option<super::admin_socket::ContextAdminSocket>,
}

impl fmt::Debug for PlaceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("application", &self.application.name).field("held", &self.held()).finish()
    }
}

/// Registration of a context (LEO Table II).
pub struct Builder {
    application: Application,
    requester: Hardware,
    responder: Hardware,
    strategy: SelectionStrategy,
    limits: Limits,
    comms: [Option<(String, Box<dyn CommFunction>)>; ROLES],
    windows: Windows,
    /// Role of each window.
    window_roles: Vec<(String, DeviceRole)>,
    attached: Windows,
    clocks: HashMap<String, TsFn>,
    functions: Vec<(String, DeviceRole, TaskCode, usize)>,
    devices: [Option<Arc<dyn ComputeDevice>>; ROLES],
    next: Vec<(String, NextFn)>,
    samples: Vec<(String, Bytes)>,
    handles_itself: bool,
    hooks: Option<Arc<dyn TaskHooks>>,
    one_machine: bool,
    #[cfg(unix)]
    admin_socket: Option<std::path::PathBuf>,
    wrong: Option<String>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("application", &self.application.name).finish_non_exhaustive()
    }
}

impl Builder {
    /// Creates a builder for an application between two hosts of this hardware.
    #[must_use]
    pub fn new(application: Application, requester: Hardware, responder: Hardware) -> Self {
        Self {
            application,
            requester,
            responder,
            strategy: SelectionStrategy::Leo,
            limits: Limits::default(),
            comms: Default::default(),
            windows: Windows::default(),
            window_roles: Vec::new(),
            attached: Windows::default(),
            clocks: HashMap::new(),
            functions: Vec::new(),
            devices: Default::default(),
            next: Vec::new(),
            samples: Vec::new(),
            handles_itself: true,
            hooks: None,
            one_machine: false,
            #[cfg(unix)]
            admin_socket: None,
            wrong: None,
        }
    }

    /// Sets the strategy of the selector.
    #[must_use]
    pub fn strategy(mut self, strategy: SelectionStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the device of a role.
    #[must_use]
    pub fn device(mut self, role: DeviceRole, device: Arc<dyn ComputeDevice>) -> Self {
        let name = device.info().name.clone();
        if let Some(first) = self.devices[role as usize].replace(device) {
            let first = first.info().name.clone();
            self.wrong = Some(format!("{role} has two devices, `{first}` and `{name}`: register one"));
        }
        self
    }

    /// Registers the communication function to a role of the other side; the CPU's, or else the first one, serves roles
    /// without their own.
    #[must_use]
    pub fn reg_comm_func(mut self, comm: impl CommFunction + 'static, name: &str, role: DeviceRole) -> Self {
        if self.comms[role as usize].replace((name.into(), Box::new(comm))).is_some() {
            self.wrong = Some(format!("{role} has two communication functions: `{name}` is the second; register one"));
        }
        self
    }

    /// Registers memory that the other side may read and write under this name: memory of the host for the CPU, or a
    /// [`DeviceWindow`](crate::device::DeviceWindow) for the role of its device.
    #[must_use]
    pub fn reg_mem_func(mut self, memory: Arc<dyn MemoryWindow>, name: &str, role: DeviceRole) -> Self {
        self.window_roles.push((name.into(), role));
        if self.windows.0.insert(name.into(), memory).is_some() {
            self.wrong = Some(format!("two memories are registered as `{name}`: register each under its own name"));
        }
        self
    }

    /// Attaches memory of the other side that this process can access itself, such as a
    /// [`SharedWindow`](super::window::SharedWindow) of another process on this host: reads and writes of this name
    /// are executed at once, without a message.
    #[must_use]
    pub fn attach_window(mut self, memory: Arc<dyn MemoryWindow>, name: &str) -> Self {
        if self.attached.0.insert(name.into(), memory).is_some() {
            self.wrong = Some(format!("two memories are attached as `{name}`"));
        }
        self
    }

    /// Registers a clock: `cpu` for t1, t4 and t6; `nic` for t2, t3 and t5, if the network card has a synchronised
    /// clock of its own. Monotonic nanoseconds of a common origin.
    #[must_use]
    pub fn reg_ts_func(mut self, clock: TsFn, name: &str) -> Self {
        if !["cpu", "nic"].contains(&name) {
            self.wrong = Some(format!("invalid clock `{name}`: expected `cpu` or `nic`"));
        }
        if self.clocks.insert(name.into(), clock).is_some() {
            self.wrong = Some(format!("two clocks are registered as `{name}`: register one"));
        }
        self
    }

    /// Registers the function of a task on a role. If the role's device may be of several kinds, register several:
    /// the first that the device can run is used. `answer_max` is the maximum answer length in bytes, if larger than
    /// the request.
    #[must_use]
    pub fn reg_app_func(mut self, code: TaskCode, name: &str, role: DeviceRole, answer_max: usize) -> Self {
        self.functions.push((name.into(), role, code, answer_max));
        self
    }

    /// Sets the function that makes the next trip's message, for a request type whose dataflows have several trips.
    /// The default is the previous answer.
    #[must_use]
    pub fn next(mut self, kind: &str, next: NextFn) -> Self {
        self.next.push((kind.into(), next));
        self
    }

    /// Sets a sample request of a task. `init` runs it on all devices, whose answers must be equal. If the
    /// application's file has no compute time, the measured time of each is used.
    #[must_use]
    pub fn sample(mut self, task: &str, request: Bytes) -> Self {
        self.samples.push((task.into(), request));
        self
    }

    /// Whether the context handles incoming requests itself, on the role that they name (the default), or returns
    /// them as [`Event::Request`](super::Event::Request).
    #[must_use]
    pub fn handles_itself(mut self, itself: bool) -> Self {
        self.handles_itself = itself;
        self
    }

    /// Sets the hooks that run before and after the tasks of incoming requests.
    #[must_use]
    pub fn task_hooks(mut self, hooks: Arc<dyn TaskHooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Declares that requester and responder are one machine, which share processor and accelerators.
    #[must_use]
    pub fn one_machine(mut self) -> Self {
        self.one_machine = true;
        self
    }

    /// Opens an admin socket at this path, which explains selections to `pathcall place explain`.
    #[cfg(unix)]
    #[must_use]
    pub fn admin_socket(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.admin_socket = Some(path.into());
        self
    }

    /// Loads functions, runs the samples, and starts the communication.
    ///
    /// # Errors
    /// [`InitError`], with the reason and the remedy.
    pub fn init(self) -> Result<PlaceContext, InitError> {
        let Self {
            mut application, requester, responder, strategy, limits, windows, clocks, functions, devices, ..
        } = self;
        if let Some(wrong) = self.wrong {
            return Err(InitError::Registered(wrong));
        }
        if windows.0.len() > WINDOWS_MAX {
            return Err(InitError::Registered(format!("more than {WINDOWS_MAX} memories are registered")));
        }
        for (name, role) in &self.window_roles {
            check_window_role(&windows, name, *role, devices[*role as usize].as_deref())?;
        }
        application = application.for_hosts(&requester, &responder)?;
        let tasks = load(&application, &devices, &functions)?;
        for (name, request) in &self.samples {
            check_sample(&mut application, &devices, &tasks, name, request)?;
        }
        let laid = if self.one_machine { Paths::of_machine } else { Paths::of };
        let mut paths = laid(&requester, &responder, &application)?;
        let next = next_functions(&application, self.next)?;
        let ordered = self.comms.iter().flatten().all(|(_, comm)| comm.is_ordered());
        let flows = PathTrips::new(&application);
        let one_by_one = |role: DeviceRole| {
            // An accelerator may fail one job and complete the next one, which breaks the order.
            role == DeviceRole::Cpu && devices[role as usize].as_ref().is_none_or(|device| device.info().in_order)
        };
        for (path, trips) in paths.paths.iter_mut().zip(flows.by_path()) {
            // Properties that the hardware's model does not contain.
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
        let mut comms: [Option<Box<dyn CommFunction>>; ROLES] = Default::default();
        for (role, comm) in self.comms.into_iter().enumerate() {
            let Some((name, mut comm)) = comm else { continue };
            let start =
                CommStart { inbox: inbox.clone(), windows: Arc::clone(&windows), clock: Arc::clone(&nic_clock) };
            comm.start(start).map_err(|reason| InitError::Comm { name, reason })?;
            comms[role] = Some(comm);
        }
        let mut queues: [Option<DeviceQueue<JobOwner>>; ROLES] = Default::default();
        for (role, device) in DeviceRole::ALL.into_iter().zip(devices) {
            let slowest = application.tasks.iter().filter_map(|task| task.compute_ns[role as usize]).max();
            let stall = limits.stall.max(Duration::from_nanos(slowest.unwrap_or(0).saturating_mul(100)));
            let stall = role.is_acc().then_some(stall);
            queues[role as usize] = device.map(|device| DeviceQueue::new(device, role, limits.jobs_max, stall));
        }
        let devices = queues.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        #[cfg(unix)]
        let admin_socket = match self.admin_socket {
            Some(path) => Some(super::admin_socket::ContextAdminSocket::open(&path).map_err(|error| {
                InitError::Registered(format!("cannot open admin socket {}: {error}", path.display()))
            })?),
            None => None,
        };
        let telemetry = TelemetryState::new(&paths, limits.explained_max);
        Ok(PlaceContext {
            flows,
            queues,
            roles: &ALL_ROLES[..devices],
            entries: PendingRequests::new(limits.select.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX) as usize),
            limits,
            application,
            paths,
            selector,
            next,
            tasks,
            comms,
            arrivals,
            _inbox: inbox,
            accesses: HashMap::new(),
            accessed: 0,
            attached: self.attached,
            events: VecDeque::new(),
            polled_at: Instant(0),
            cpu_clock,
            nic_clock,
            telemetry,
            handles_itself: self.handles_itself,
            hooks: self.hooks,
            stop: None,
            #[cfg(unix)]
            admin_socket,
        })
    }
}
