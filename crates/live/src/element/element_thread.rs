//! Thread of an element: processes digests and server messages, and sends batches and commands.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pathcall_netfn::live::{self, Controller};
use pathcall_netfn::place::ServerId;
use pathcall_netfn::scale::Event as ScaleEvent;
use pathcall_p4::exec::{Execution, Output};
use pathcall_p4::ir::CounterId;
use pathcall_p4::split::ElementEvent;
use pathcall_proto::v1::{ChangeGroupReply, ChangeGroupRequest, FunctionServer, FunctionStatusReply, ServerHello};
use pathcall_xdp::function::{LossReason, Root, XdpFunction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tonic::Status;

use super::connections::{CommandSender, Connections};
use super::waiting;
use crate::interface::mac_text;
use crate::service::{Command, ConnectionId, HelloRequest};
use crate::waker::Waker;
use crate::{Error, messages};

/// State of the element's thread; its drop detaches the function.
#[derive(Debug)]
pub(super) struct ElementThread {
    // Declared first: the roots are detached before the function is dropped.
    _roots: Vec<Root>,
    controller: Controller,
    function: XdpFunction,
    /// File descriptor that is readable when there are digests.
    ready: Option<OwnedFd>,
    digest: u64,
    events: CounterId,
    name: String,
    connections: Connections,
}

impl ElementThread {
    pub(super) fn new(
        controller: Controller,
        function: XdpFunction,
        (roots, ready): (Vec<Root>, Option<OwnedFd>),
        (digest, events): (u64, CounterId),
        name: String,
    ) -> Self {
        let connections = Connections::new(controller.devices().len());
        Self { _roots: roots, controller, function, ready, digest, events, name, connections }
    }

    /// Runs until a stop command, or until no sender is left.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>, waker: &Waker) {
        loop {
            waker.reset();
            loop {
                match commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            if let Err(error) = self.process_digests().and_then(|()| self.wait(waker)) {
                tracing::error!(%error, "the controller of the function has failed");
                return;
            }
        }
    }

    /// Processes the digests that have arrived, then the work that is due.
    fn process_digests(&mut self) -> Result<(), Error> {
        let now_us = self.function.now_us();
        let controller = &mut self.controller;
        self.function.take_digests(&mut |output| {
            if let Output::Digest { name, values } = output {
                controller.digest(now_us, name, values);
            }
        })?;
        self.run_controller();
        Ok(())
    }

    fn run_controller(&mut self) {
        self.controller.run(self.function.now_us(), &mut self.function);
        while let Some(output) = self.controller.poll() {
            match output {
                live::Output::Send(server, command) => self.connections.send(server, messages::encode_command(command)),
                live::Output::Event(change) => self.handle_event(&change),
            }
        }
    }

    fn handle_event(&mut self, change: &ScaleEvent) {
        let devices = self.controller.devices();
        let name = |server: ServerId| devices.get(usize::from(server)).map_or("?", |device| &device.name);
        match change {
            ScaleEvent::Up(server) => {
                tracing::info!(function = self.name, server = name(*server), "server is up");
                self.connections.activate(*server);
            }
            ScaleEvent::Down { server, flows } => {
                tracing::warn!(function = self.name, server = name(*server), flows, "server is dead");
                self.connections.deactivate(*server);
            }
            ScaleEvent::Changed { version, servers } => {
                let servers: Vec<_> = servers.iter().map(|server| name(*server)).collect();
                tracing::info!(function = self.name, version, ?servers, "group of servers changed");
            }
            ScaleEvent::Drained(version) => {
                tracing::info!(function = self.name, version, "previous group has drained")
            }
            ScaleEvent::Waits { version, servers } => {
                let servers: Vec<_> = servers.iter().map(|(server, flows)| (name(*server), flows)).collect();
                tracing::warn!(
                    function = self.name,
                    version,
                    ?servers,
                    "change of the group waits for flows of the previous group"
                );
            }
            ScaleEvent::Overdue { version, flows } => {
                tracing::warn!(function = self.name, version, flows, "previous group ended while it had flows");
            }
        }
    }

    /// Waits for digests, for commands, or for the controller's next deadline.
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
            Command::Hello(HelloRequest { hello, commands, taken }) => {
                // If the caller has gone, its connection ends as well.
                drop(taken.send(self.hello(&hello, commands)));
            }
            Command::Message(from, message) => {
                if self.connections.is_current(from) {
                    self.controller.handle_message(self.function.now_us(), from.server, message);
                }
            }
            Command::Closed(from) => self.connections.close(from),
            Command::Change(request, answer) => drop(answer.send(self.change(&request))),
            Command::Status(answer) => drop(answer.send(self.status())),
            Command::Stop => {}
        }
    }

    fn hello(&mut self, hello: &ServerHello, commands: CommandSender) -> Result<ConnectionId, Status> {
        let id = self.server(&hello.name)?;
        if hello.digest != self.digest {
            let problem = "runs another function than the element: start both with the same file and the same options";
            return Err(Status::failed_precondition(format!("server {} {problem}", hello.name)));
        }
        let mac = self.controller.devices()[usize::from(id)].mac;
        if hello.mac != mac {
            let (name, actual) = (&hello.name, <[u8; 6]>::try_from(&*hello.mac).map_or("?".to_owned(), mac_text));
            let mismatch = format!("server {name} has MAC address {actual}, the topology file has {}", mac_text(mac));
            return Err(Status::failed_precondition(mismatch));
        }
        let taken = self.connections.open(id, commands);
        self.controller.server_started(self.function.now_us(), id);
        self.run_controller();
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
        self.controller.set_wanted(self.function.now_us(), wanted);
        Ok(reply)
    }

    fn status(&self) -> FunctionStatusReply {
        let scaler = self.controller.scaler();
        let (group, wanted) = (scaler.group(), scaler.wanted().collect::<Vec<_>>());
        let server = |(id, device): (usize, &pathcall_netfn::scale::TopologyDevice)| {
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
        let event = |event: ElementEvent| self.function.counter(self.events, event as u32).packets;
        let (placed, scaled) = (self.controller.placement(), self.controller.scaler().stats());
        let mut counters = vec![
            ("requests", event(ElementEvent::Request)),
            ("responses", event(ElementEvent::Response)),
            ("ended", event(ElementEvent::Ended)),
            ("no_server", event(ElementEvent::NoServer)),
            ("stray", event(ElementEvent::Stray)),
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
        // A counter that the kernel cannot read counts as 0.
        let lost = |reason| self.function.lost(reason).unwrap_or(0);
        counters.extend([
            ("lost_dropped", lost(LossReason::Dropped)),
            ("lost_no_room", lost(LossReason::NoRoom)),
            ("lost_no_way_in", lost(LossReason::NoWayIn)),
            ("lost_digests", lost(LossReason::DigestLost)),
            ("lost_odd_bits", lost(LossReason::OddBits)),
            ("lost_recirculated", lost(LossReason::Recirculated)),
        ]);
        counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
