//! The thread of an element: digests and words in, batches and tasks out.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pathcall_function::exec::{Execution, Output};
use pathcall_function::ir::CounterId;
use pathcall_function::live::{self, Controller};
use pathcall_function::place::ServerId;
use pathcall_function::scale::Event as Change;
use pathcall_function::split::Event;
use pathcall_proto::v1::{ChangeGroupReply, ChangeGroupRequest, FunctionServer, FunctionStatusReply, ServerHello};
use pathcall_xdp::function::{Lost, Root, XdpFunction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tonic::Status;

use super::links::{Links, Tasks};
use super::waiting;
use crate::interface::mac_text;
use crate::service::{Command, Offer, Taken};
use crate::wake::Waker;
use crate::{Error, words};

/// What the thread owns. Dropping it detaches the function.
#[derive(Debug)]
pub(super) struct Drive {
    // Detached before the function goes.
    _roots: Vec<Root>,
    controller: Controller,
    function: XdpFunction,
    /// Readable when there are digests.
    ready: Option<OwnedFd>,
    digest: u64,
    events: CounterId,
    name: String,
    links: Links,
}

impl Drive {
    pub(super) fn new(
        controller: Controller,
        function: XdpFunction,
        (roots, ready): (Vec<Root>, Option<OwnedFd>),
        (digest, events): (u64, CounterId),
        name: String,
    ) -> Self {
        let links = Links::new(controller.devices().len());
        Self { _roots: roots, controller, function, ready, digest, events, name, links }
    }

    /// Until it is told to stop.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>, waker: &Waker) {
        loop {
            waker.heard();
            loop {
                match commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            if let Err(error) = self.turn().and_then(|()| self.wait(waker)) {
                tracing::error!(%error, "the function has no controller any more");
                return;
            }
        }
    }

    /// What was told, then what is due.
    fn turn(&mut self) -> Result<(), Error> {
        let now_us = self.function.now_us();
        let controller = &mut self.controller;
        self.function.tell(&mut |output| {
            if let Output::Digest { name, values } = output {
                controller.digest(now_us, name, values);
            }
        })?;
        self.due();
        Ok(())
    }

    fn due(&mut self) {
        self.controller.run(self.function.now_us(), &mut self.function);
        while let Some(output) = self.controller.poll() {
            match output {
                live::Output::Tell(server, task) => self.links.tell(server, words::task_out(task)),
                live::Output::Event(change) => self.changed(&change),
            }
        }
    }

    fn changed(&mut self, change: &Change) {
        let devices = self.controller.devices();
        let name = |server: ServerId| devices.get(usize::from(server)).map_or("?", |device| &device.name);
        match change {
            Change::Up(server) => {
                tracing::info!(function = self.name, server = name(*server), "a server is there");
                self.links.up(*server);
            }
            Change::Down { server, flows } => {
                tracing::warn!(function = self.name, server = name(*server), flows, "a server is dead");
                self.links.down(*server);
            }
            Change::Changed { version, servers } => {
                let servers: Vec<_> = servers.iter().map(|server| name(*server)).collect();
                tracing::info!(function = self.name, version, ?servers, "new flows go to another group");
            }
            Change::Drained(version) => tracing::info!(function = self.name, version, "a group has no flows any more"),
            Change::Waits { version, servers } => {
                let servers: Vec<_> = servers.iter().map(|(server, flows)| (name(*server), flows)).collect();
                tracing::warn!(function = self.name, version, ?servers, "a change waits for flows of the group before");
            }
            Change::Overdue { version, flows } => {
                tracing::warn!(function = self.name, version, flows, "a group has ended with flows in it");
            }
        }
    }

    /// Waits for digests, commands, or something to do.
    fn wait(&self, waker: &Waker) -> Result<(), Error> {
        let left = Duration::from_micros(self.controller.next_at().saturating_sub(self.function.now_us()));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(waker, PollFlags::IN)];
        fds.extend(self.ready.iter().map(|ready| PollFd::new(ready, PollFlags::IN)));
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(waiting(error.into())),
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Hello(Offer { hello, tasks, taken }) => {
                // Whoever called may be gone: the connection ends then, too.
                drop(taken.send(self.hello(&hello, tasks)));
            }
            Command::Word(from, word) => {
                if self.links.is_current(from) {
                    self.controller.heard(self.function.now_us(), from.server, word);
                }
            }
            Command::Gone(from) => self.links.gone(from),
            Command::Change(request, answer) => drop(answer.send(self.change(&request))),
            Command::Status(answer) => drop(answer.send(self.status())),
            Command::Stop => {}
        }
    }

    fn hello(&mut self, hello: &ServerHello, tasks: Tasks) -> Result<Taken, Status> {
        let id = self.server(&hello.name)?;
        if hello.digest != self.digest {
            let what = "runs another function than the element: start both with the same file and the same options";
            return Err(Status::failed_precondition(format!("server {} {what}", hello.name)));
        }
        let mac = self.controller.devices()[usize::from(id)].mac;
        if hello.mac != mac {
            let (name, theirs) = (&hello.name, <[u8; 6]>::try_from(&*hello.mac).map_or("?".to_owned(), mac_text));
            let said = format!("server {name} is at {theirs}, the topology says {}", mac_text(mac));
            return Err(Status::failed_precondition(said));
        }
        let taken = self.links.begins(id, tasks);
        self.controller.began(self.function.now_us(), id);
        self.due();
        Ok(taken)
    }

    fn server(&self, name: &str) -> Result<ServerId, Status> {
        let devices = self.controller.devices();
        let found = devices.iter().position(|device| device.name == name);
        found.map(|id| id as ServerId).ok_or_else(|| {
            let known: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
            Status::not_found(format!("the topology has no server {name:?}: it has {}", known.join(", ")))
        })
    }

    fn change(&mut self, request: &ChangeGroupRequest) -> Result<ChangeGroupReply, Status> {
        let ids = |names: &[String]| names.iter().map(|name| self.server(name)).collect::<Result<Vec<_>, _>>();
        let (add, remove) = (ids(&request.add)?, ids(&request.remove)?);
        let mut wanted: Vec<ServerId> = self.controller.scaler().wanted().chain(add).collect();
        wanted.retain(|server| !remove.contains(server));
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Err(Status::failed_precondition("no server would be left: add another first"));
        }
        let name = |server: &ServerId| self.controller.devices()[usize::from(*server)].name.clone();
        let reply = ChangeGroupReply { servers: wanted.iter().map(name).collect() };
        self.controller.want(self.function.now_us(), wanted);
        Ok(reply)
    }

    fn status(&self) -> FunctionStatusReply {
        let scaler = self.controller.scaler();
        let (group, wanted) = (scaler.group(), scaler.wanted().collect::<Vec<_>>());
        let server = |(id, device): (usize, &pathcall_function::scale::Device)| {
            let id = id as ServerId;
            let flows = scaler.flows(id);
            FunctionServer {
                name: device.name.clone(),
                alive: flows.is_some(),
                in_group: group.contains(&id),
                wanted: wanted.contains(&id),
                flows: flows.unwrap_or(0),
            }
        };
        FunctionStatusReply {
            servers: self.controller.devices().iter().enumerate().map(server).collect(),
            version: scaler.version().into(),
            changing: scaler.changing(),
            counters: self.counters(),
        }
    }

    fn counters(&self) -> HashMap<String, u64> {
        let event = |event: Event| self.function.counter(self.events, event as u32).packets;
        let (placed, scaled) = (self.controller.placement(), self.controller.scaler().stats());
        let mut counters = vec![
            ("requests", event(Event::Request)),
            ("responses", event(Event::Response)),
            ("ended", event(Event::Ended)),
            ("no_server", event(Event::NoServer)),
            ("stray", event(Event::Stray)),
            ("reports", placed.reports),
            ("placed", placed.placed),
            ("aged", placed.aged),
            ("replaced", placed.replaced),
            ("recalled", placed.recalled),
            ("refused", placed.refused),
            ("forced", placed.forced),
            ("changes", scaled.changes),
            ("changes_by_load", scaled.by_load),
            ("deaths", scaled.deaths),
            ("flows_lost", scaled.flows_lost),
        ];
        // What the kernel does not say counts as nothing.
        let lost = |why| self.function.lost(why).unwrap_or(0);
        counters.extend([
            ("lost_dropped", lost(Lost::Dropped)),
            ("lost_no_room", lost(Lost::NoRoom)),
            ("lost_no_way_in", lost(Lost::NoWayIn)),
            ("lost_digests", lost(Lost::DigestLost)),
            ("lost_odd_bits", lost(Lost::OddBits)),
            ("lost_recirculated", lost(Lost::Recirculated)),
        ]);
        counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
