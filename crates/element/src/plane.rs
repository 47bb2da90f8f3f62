//! Data thread of an element: runs frames through the program, and commands between batches of frames.
//!
//! Only this thread owns program, socket and routes. A command is a closure that runs between two batches of frames;
//! its sender waits for the return value. So a change is in force for every frame that arrives after the answer, and
//! nothing is locked or shared.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use pathcall_driver::link::{Link, LinkStats, PollMode, SharingRole};
use pathcall_proto::v1::CountersReply;
use pathcall_wire::clone::switch_id;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::{mpsc, oneshot, watch};

use crate::hedge_timer::HedgeTimer;
use crate::kernel::{AttachRequest, AttachedInterface, Kernel, slow_path};
use crate::polling::Polling;
use crate::switch::{CommandRefused, Switch};
use crate::{Config, Error, Port, Registration};

/// Commands that may queue for the data thread; further senders wait.
const COMMANDS_MAX: usize = 64;

type Command = Box<dyn FnOnce(&mut Plane) + Send>;

/// Handle of the data thread, which ends once this handle and all calls in progress are gone.
#[derive(Debug)]
pub(crate) struct PlaneThread {
    started: StartReport,
    commands: mpsc::Sender<Command>,
    thread: thread::JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

/// Report of the data thread after a successful start.
#[derive(Debug)]
struct StartReport {
    local: SocketAddr,
    attached: Vec<AttachedInterface>,
    #[cfg(feature = "xdp")]
    program: Option<pathcall_xdp::function::SwitchProgramRef>,
}

impl PlaneThread {
    /// Starts the thread and returns when it has bound `data`.
    pub(crate) async fn start(config: &Config) -> Result<Self, Error> {
        let (data, cpu, config) = (config.data, config.cpu, config.clone());
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (bound, binding) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let work = move || {
            let _end = end;
            if let Some(cpu) = cpu
                && let Err(error) = pin(cpu)
            {
                return drop(bound.send(Err(error)));
            }
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(bound.send(Err(Error::Thread(error)))),
            };
            runtime.block_on(async {
                let link = Link::bind(data).map_err(|error| Error::bind(Port::Data, data, error));
                match link.and_then(|link| Plane::start(link, &config)) {
                    #[cfg_attr(not(feature = "xdp"), expect(unused_mut, reason = "its program is taken"))]
                    Ok(mut plane) => {
                        let started = StartReport {
                            local: plane.link.local_addr(),
                            attached: plane.switch.attached().to_vec(),
                            #[cfg(feature = "xdp")]
                            program: plane.switch.take_program(),
                        };
                        if bound.send(Ok(started)).is_ok() {
                            plane.run(receiver).await;
                        }
                    }
                    Err(error) => drop(bound.send(Err(error))),
                }
            });
        };
        let thread = thread::Builder::new().name("pathcall-plane".into()).spawn(work).map_err(Error::Thread)?;
        let started = binding.await.map_err(|_| Error::Thread(io::Error::other("it ended at once")))??;
        Ok(Self { started, commands, thread, ended })
    }

    /// Address on which frames are received.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.started.local
    }

    /// Interfaces that the XDP program is attached to.
    pub(crate) fn attached(&self) -> &[AttachedInterface] {
        &self.started.attached
    }

    /// Takes the XDP program, for root programs.
    #[cfg(feature = "xdp")]
    pub(crate) fn take_program(&mut self) -> Option<pathcall_xdp::function::SwitchProgramRef> {
        self.started.program.take()
    }

    /// Returns a sender of commands that does not keep the thread running.
    pub(crate) fn handle(&self) -> PlaneHandle {
        PlaneHandle(self.commands.downgrade())
    }

    /// Ends the thread and waits until its socket is closed.
    pub(crate) async fn stop(self) {
        drop(self.commands);
        // The sender is never used, only dropped: the error marks the end of the thread.
        let _ = self.ended.await;
        if self.thread.join().is_err() {
            tracing::error!("the element's data thread panicked");
        }
    }
}

/// Sender of commands to the data thread.
#[derive(Debug, Clone)]
pub(crate) struct PlaneHandle(mpsc::WeakSender<Command>);

/// Error: the data thread has ended or is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the element is stopping")]
pub(crate) struct Stopped;

impl PlaneHandle {
    /// Runs `command` on the data thread, between two batches of frames, and returns its result.
    pub(crate) async fn call<R: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Plane) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (answer, answered) = oneshot::channel();
        // The command runs even if its sender no longer waits.
        let command: Command = Box::new(move |plane| drop(answer.send(command(plane))));
        let commands = self.0.upgrade().ok_or(Stopped)?;
        commands.send(command).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }
}

/// Sets the program's switch id to the id from the controller after each registration. Returns when the element ends.
pub(crate) async fn keep_switch_id(plane: PlaneHandle, mut registration: watch::Receiver<Registration>) {
    while registration.changed().await.is_ok() {
        let Registration::Known { element, .. } = *registration.borrow_and_update() else { continue };
        let switch_id = switch_id(element);
        match plane.call(move |plane| plane.switch.set_switch_id(switch_id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "cannot set the switch id of the XDP program"),
            Err(Stopped) => return,
        }
    }
}

/// State of the data thread.
#[derive(Debug)]
pub(crate) struct Plane {
    link: Link,
    /// Link on which frames arrive that the kernel's program has processed.
    slow: Option<Link>,
    switch: Switch,
    polling: Polling,
    hedge_timer: HedgeTimer,
}

impl Plane {
    /// Creates the state, with the XDP program if configured.
    fn start(mut link: Link, config: &Config) -> Result<Self, Error> {
        let Config { xdp: interfaces, rooted, inline, advertise, size, shared_memory, .. } = config;
        // Frames in shared memory would bypass the XDP program.
        if *shared_memory
            && interfaces.is_empty()
            && let Err(error) = link.share_memory(SharingRole::Offer)
        {
            tracing::warn!(%error, "cannot create shared memory for endpoints of this host: all frames use UDP");
        }
        let (data, advertise, size, inlined) = (link.local_addr(), *advertise, *size, *inline);
        let request = AttachRequest { interfaces, rooted, data, advertise, size, inlined };
        let kernel = match interfaces.is_empty() {
            true => None,
            false => Kernel::start(&request)?,
        };
        Self::new(link, kernel, config)
    }

    fn new(link: Link, kernel: Option<(Kernel, Link)>, config: &Config) -> Result<Self, Error> {
        let (kernel, slow) = kernel.unzip();
        let Config { size, congestion_bytes, busy_poll, .. } = *config;
        let own = link.local_addr();
        Ok(Self {
            link,
            slow,
            switch: Switch::new(size, congestion_bytes, own, kernel),
            polling: Polling::new(Instant::now(), busy_poll),
            hedge_timer: HedgeTimer::new().map_err(Error::Thread)?,
        })
    }

    /// Runs until all senders of commands are gone.
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            self.poll(&commands);
            self.hedge_timer.arm(self.switch.now(), self.switch.next_hedge());
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => command(&mut self),
                    None => break,
                },
                ready = self.link.readable() => if ready.is_err() {
                    break;
                },
                ready = readable(self.slow.as_mut()) => if ready.is_err() {
                    break;
                },
                // The hedges leave with the next batch.
                () = self.hedge_timer.expired() => {}
            }
            while let Ok(command) = commands.try_recv() {
                command(&mut self);
            }
            let found = self.forward(PollMode::IfReady);
            self.polling.woken(Instant::now(), found);
            if self.link.is_blocked() {
                // Only a turn of the runtime detects that the socket is writable again.
                tokio::task::yield_now().await;
            }
        }
        self.link.flush();
    }

    /// Processes frames and commands as long as polling pays.
    fn poll(&mut self, commands: &mpsc::Receiver<Command>) {
        // A full send buffer needs the runtime, too.
        while commands.is_empty()
            && !commands.is_closed()
            && !self.link.is_blocked()
            && self.polling.should_poll(Instant::now())
        {
            if self.forward(PollMode::Always) {
                self.polling.found(Instant::now());
            } else if self.polling.is_late() {
                thread::yield_now();
            }
        }
    }

    /// Processes one batch of frames from the socket, and sends the results and the hedges that are due. Returns whether
    /// there was a frame.
    fn forward(&mut self, poll_mode: PollMode) -> bool {
        let now = self.switch.now();
        let switch = &mut self.switch;
        let slow_path_result = self.slow.as_mut().map(|slow| {
            let link = &mut self.link;
            slow.exchange(poll_mode, |_, from, _, frame| {
                switch.forward_by_slow_path(slow_path(from.port()), frame, |addr, frame| link.queue(addr, frame));
            })
        });
        let received =
            self.link.exchange(poll_mode, |out, _, congested, frame| switch.forward(now, congested, frame, out));
        if let Err(error) = &received {
            // A datagram socket reports errors of an earlier datagram; the next call continues.
            tracing::debug!(%error, "receiving frames");
        }
        if self.switch.next_hedge().is_some_and(|at| at <= now) {
            let link = &mut self.link;
            self.switch.send_hedges(now, |addr, frame| link.queue(addr, frame));
        }
        self.link.flush();
        matches!(received, Ok(1..)) || matches!(slow_path_result, Some(Ok(1..)))
    }

    /// Program and routes, for commands.
    pub(crate) fn switch(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Counters of the program and of the link (`link_…`).
    pub(crate) fn counters(&self) -> Result<CountersReply, CommandRefused> {
        let LinkStats {
            frames_in, bytes_in, calls_in, frames_out, bytes_out, calls_out, lost_full, lost_error, ..
        } = self.link.stats();
        let LinkStats { ring_frames_in, ring_frames_out, rings_agreed, rings_refused, rings_broken, .. } =
            self.link.stats();
        let peers: Vec<SocketAddr> = self.link.memory_peers().collect();
        let link = [
            ("link_frames_in", frames_in),
            ("link_bytes_in", bytes_in),
            ("link_calls_in", calls_in),
            ("link_frames_out", frames_out),
            ("link_bytes_out", bytes_out),
            ("link_calls_out", calls_out),
            ("link_lost_full", lost_full),
            ("link_lost_error", lost_error),
            ("link_ring_frames_in", ring_frames_in),
            ("link_ring_frames_out", ring_frames_out),
            ("link_rings", peers.len() as u64),
            ("link_rings_agreed", rings_agreed),
            ("link_rings_refused", rings_refused),
            ("link_rings_broken", rings_broken),
        ];
        let mut counters = self.switch.counters()?;
        counters.shared_memory = self.switch.endpoints_at(&peers);
        counters.element.extend(link.map(|(name, count)| (name.to_owned(), count)));
        Ok(counters)
    }
}

/// Waits for an optional link; waits forever without one.
async fn readable(link: Option<&mut Link>) -> io::Result<()> {
    match link {
        Some(link) => link.readable().await,
        None => std::future::pending().await,
    }
}

/// Pins the calling thread to one processor.
fn pin(cpu: usize) -> Result<(), Error> {
    let pinned = if cpu < CpuSet::MAX_CPU {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).map_err(io::Error::from)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    pinned.map_err(|source| Error::Cpu { cpu, source })
}

#[cfg(test)]
mod tests;
