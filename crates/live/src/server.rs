//! Server of a function: exchanges messages with the controller by gRPC, and frames by a packet socket.
//!
//! ```text
//!              session (tokio)                              thread
//! controller ◄── messages ── channel ◄───────────── GroupServer ── frames ◄─► packet socket
//!            ── commands ──► channel, waker ───────►
//! ```
//!
//! The thread runs as long as the session. When the controller is lost, so is the server's state, and the next session
//! starts with a fresh server.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_auth::{ConnectTarget, ExpectedPeer, PartyRole, Security};
use pathcall_netfn::handler::{self, CHandler, HandlerStartError};
use pathcall_netfn::live::{GroupServer, ServerCommand};
use pathcall_netfn::serve::{FrameAnswer, HandlerServer, Stats};
use pathcall_p4::ir::{Program, SourceSpan};
use pathcall_p4::split::SplitFunction;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ServerHello, ServerReport, ServerTask, server_report};
use pathcall_wire::function::REQUEST;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::oneshot;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::interface::Interface;
use crate::packet_socket::PacketSocket;
use crate::waker::Waker;
use crate::{Error, messages};

/// Most messages or commands that are queued; a peer with a full queue is treated as lost.
pub(crate) const WAITING_MAX: usize = 1 << 16;
/// Pause between two calls of a lost controller.
const CALL_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for an answer of the controller.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keep-alive pings on an idle connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Batches of frames that are processed between two checks for commands.
const BATCHES_MAX: usize = 16;

/// Lookup of a source position for the C compiler: file, line and column.
pub type SourceLocator = Box<dyn Fn(SourceSpan) -> Option<(String, usize, usize)> + Send + Sync>;

/// Settings of a server.
pub struct ServerSetup {
    /// Name of the server in the topology.
    pub name: String,
    /// Interface on which requests arrive.
    pub interface: String,
    /// URL of the function's controller, `http://host:port`.
    pub controller: String,
    /// Certificate for calls to the controller, if any.
    pub security: Security,
    /// Program of the function.
    pub program: Program,
    /// Program split as in the element.
    pub split: SplitFunction,
    /// Digest of the program and its split: [`crate::digest`].
    pub digest: u64,
    /// Source positions, for errors of the C compiler.
    pub locate: SourceLocator,
    /// Settings of the handler.
    pub handler: handler::Config,
    /// Cache directory of built handlers.
    pub cache: PathBuf,
}

/// Counters of one session, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServeReport {
    /// Counters of the server.
    pub stats: Stats,
    /// Frames longer than the interface's MTU.
    pub too_long: u64,
    /// Responses that the system refused to send.
    pub unsent: u64,
    /// Number of sessions with the controller.
    pub sessions: u64,
}

impl ServeReport {
    fn add(&mut self, other: &Self) {
        let sum = &mut self.stats;
        sum.requests += other.stats.requests;
        sum.refused += other.stats.refused;
        sum.repeated += other.stats.repeated;
        sum.ended += other.stats.ended;
        sum.trapped += other.stats.trapped;
        self.too_long += other.too_long;
        self.unsent += other.unsent;
        self.sessions += 1;
    }
}

/// Serves until `stop` completes; `ready` is called each time the controller has accepted the server.
///
/// # Errors
/// If the handler, the interface or the socket fails, or if the controller refuses this server.
pub async fn serve(
    setup: ServerSetup,
    mut ready: impl FnMut(),
    stop: impl Future<Output = ()>,
) -> Result<ServeReport, Error> {
    let interface = Interface::of(&setup.interface)?;
    // Errors of the handler are reported before the controller is called.
    drop(setup.start_handler()?);
    let mut packets = PacketSocket::open(&interface, REQUEST)?;
    let channel =
        setup.security.target(&setup.controller, ExpectedPeer::new(PartyRole::Element).or(PartyRole::Controller))?;
    let channel = channel.endpoint(|channel| {
        let channel = channel.connect_timeout(CALL_MAX).keep_alive_timeout(CALL_MAX).keep_alive_while_idle(true);
        channel.http2_keep_alive_interval(KEEP_ALIVE)
    });
    let hello = ServerHello { name: setup.name.clone(), digest: setup.digest, mac: interface.mac.to_vec() };
    let setup = Arc::new(setup);
    let mut served = ServeReport::default();
    tokio::pin!(stop);
    loop {
        let called = tokio::select! {
            called = call(&channel, hello.clone()) => called,
            () = &mut stop => return Ok(served),
        };
        let (messages, commands) = match called {
            Ok(session) => session,
            Err(status) if is_final(&status) => {
                let url = setup.controller.clone();
                return Err(Error::Refused { url, reason: status.message().to_owned() });
            }
            Err(status) => {
                tracing::debug!(%status, "the function's controller does not answer yet");
                tokio::select! {
                    () = tokio::time::sleep(CALL_EVERY) => continue,
                    () = &mut stop => return Ok(served),
                }
            }
        };
        ready();
        let mut session = Session::begin(Arc::clone(&setup), interface, packets, messages)?;
        let stopped = tokio::select! {
            lost = session.forward_commands(&setup.program, commands) => {
                tracing::warn!(%lost, "connection to the function's controller lost: restarting the server");
                false
            }
            () = &mut stop => true,
        };
        let (socket, done) = session.end().await?;
        served.add(&done?);
        if stopped {
            return Ok(served);
        }
        packets = socket;
    }
}

/// Whether another call would get the same status.
fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented)
}

async fn call(
    channel: &ConnectTarget,
    hello: ServerHello,
) -> Result<(mpsc::Sender<ServerReport>, Streaming<ServerTask>), Status> {
    let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let mut client = FunctionClient::new(channel.connect().await.map_err(unreachable)?);
    let (messages, receiver) = mpsc::channel(WAITING_MAX);
    let hello = ServerReport { report: Some(server_report::Report::Hello(hello)) };
    messages.try_send(hello).map_err(|_| Status::internal("no room for a hello"))?;
    let commands = client.serve(ReceiverStream::new(receiver)).await?.into_inner();
    Ok((messages, commands))
}

/// Thread of one session, with its command queue.
struct Session {
    commands: mpsc::Sender<ServerCommand>,
    waker: Waker,
    ended: oneshot::Receiver<(PacketSocket, Result<ServeReport, Error>)>,
}

impl Session {
    fn begin(
        setup: Arc<ServerSetup>,
        interface: Interface,
        mut packets: PacketSocket,
        messages: mpsc::Sender<ServerReport>,
    ) -> Result<Self, Error> {
        let system = |doing| move |source| Error::System { doing, source };
        let waker = Waker::new().map_err(system("creating an eventfd"))?;
        let (commands, command_receiver) = mpsc::channel(WAITING_MAX);
        let (end, ended) = oneshot::channel();
        let wakes = waker.clone();
        let work = move || {
            let interface =
                RequestInterface { name: setup.interface.clone(), index: interface.index, has_received: false };
            let served = ServerThread::new(&setup, interface, command_receiver, messages, wakes)
                .and_then(|thread_state| thread_state.run(&mut packets));
            // The receiver may have been dropped.
            drop(end.send((packets, served)));
        };
        thread::Builder::new().name("function-server".into()).spawn(work).map_err(system("starting a thread"))?;
        Ok(Self { commands, waker, ended })
    }

    /// Forwards commands to the thread until the controller is lost; returns the reason.
    async fn forward_commands(&mut self, program: &Program, mut commands: Streaming<ServerTask>) -> String {
        loop {
            let command = tokio::select! {
                command = commands.message() => command,
                () = self.commands.closed() => return "the server's thread has ended".to_owned(),
            };
            let command = match command {
                Ok(Some(command)) => command,
                Ok(None) => return "the controller has ended the stream".to_owned(),
                Err(status) => return status.message().to_owned(),
            };
            let command = match messages::decode_command(program, command) {
                Ok(command) => command,
                Err(error) => return error.to_string(),
            };
            // A closed queue is handled above.
            drop(self.commands.send(command).await);
            self.waker.wake();
        }
    }

    async fn end(self) -> Result<(PacketSocket, Result<ServeReport, Error>), Error> {
        drop(self.commands);
        self.waker.wake();
        self.ended.await.map_err(|_| Error::Ended("server's thread"))
    }
}

impl ServerSetup {
    fn start_handler(&self) -> Result<CHandler, HandlerStartError> {
        CHandler::start(&self.program, &*self.locate, &self.handler, &self.cache, 0)
    }
}

/// Interface on which requests arrive.
struct RequestInterface {
    name: String,
    index: u32,
    /// Whether a request has been received since the interface was down last.
    has_received: bool,
}

impl RequestInterface {
    /// Receives a batch of requests.
    ///
    /// # Errors
    /// Errors of the system, except an interface that is down: the system reports it once, and requests arrive again
    /// when the interface is up.
    fn receive(&mut self, packets: &mut PacketSocket) -> Result<usize, Error> {
        loop {
            match packets.receive() {
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                    tracing::warn!(interface = self.name, "the interface is down: no request comes until it is up");
                    self.has_received = false;
                }
                received => {
                    self.has_received |= matches!(received, Ok(1..));
                    return received.map_err(receiving);
                }
            }
        }
    }

    /// Checks that the interface still exists, as the system reports a removed interface like one that is down.
    ///
    /// # Errors
    /// [`Error::NoInterface`].
    fn check_present(&self) -> Result<(), Error> {
        if !self.has_received && Interface::of(&self.name)?.index != self.index {
            // Another interface has the name now.
            return Err(Error::NoInterface(self.name.clone()));
        }
        Ok(())
    }
}

/// State of the session's thread.
struct ServerThread {
    server: GroupServer<CHandler>,
    interface: RequestInterface,
    commands: mpsc::Receiver<ServerCommand>,
    messages: mpsc::Sender<ServerReport>,
    waker: Waker,
    started: Instant,
    served: ServeReport,
}

impl ServerThread {
    fn new(
        setup: &ServerSetup,
        interface: RequestInterface,
        commands: mpsc::Receiver<ServerCommand>,
        messages: mpsc::Sender<ServerReport>,
        waker: Waker,
    ) -> Result<Self, Error> {
        // The id is not used here: the controller identifies the server by its stream.
        let server = HandlerServer::new(0, &setup.split, setup.start_handler()?);
        let (started, served) = (Instant::now(), ServeReport::default());
        Ok(Self { server: GroupServer::new(0, server), interface, commands, messages, waker, started, served })
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn run(mut self, packets: &mut PacketSocket) -> Result<ServeReport, Error> {
        // Frames that arrived earlier were for the previous instance of the server.
        while self.interface.receive(packets)? > 0 {}
        loop {
            self.waker.reset();
            loop {
                let now_us = self.now_us();
                match self.commands.try_recv() {
                    Ok(command) => self.server.handle_command(now_us, command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(self.end()),
                }
            }
            self.process_frames(packets)?;
            self.interface.check_present()?;
            let now_us = self.now_us();
            if now_us >= self.server.next_at() {
                self.server.run(now_us);
            }
            while let Some(message) = self.server.poll() {
                // Full: the controller receives nothing. Closed: the controller is lost, and the commands will end.
                if self.messages.try_send(messages::encode_message(message)).is_err() {
                    return Ok(self.end());
                }
            }
            self.wait(packets)?;
        }
    }

    fn end(mut self) -> ServeReport {
        self.served.stats = self.server.stats();
        self.served
    }

    /// Processes waiting frames, at most a few batches.
    fn process_frames(&mut self, packets: &mut PacketSocket) -> Result<(), Error> {
        for _ in 0..BATCHES_MAX {
            let count = self.interface.receive(packets)?;
            if count == 0 {
                break;
            }
            let now_us = self.now_us();
            for at in 0..count {
                let Some(frame) = packets.frame(at) else {
                    self.served.too_long += 1;
                    continue;
                };
                if self.server.handle(now_us, frame) != FrameAnswer::Send {
                    packets.drop_frame(at);
                }
            }
            self.served.unsent += packets.send() as u64;
        }
        Ok(())
    }

    /// Waits for frames, for commands, or for the next deadline.
    fn wait(&self, packets: &PacketSocket) -> Result<(), Error> {
        let left = Duration::from_micros(self.server.next_at().saturating_sub(self.now_us()));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut ready = [PollFd::new(packets, PollFlags::IN), PollFd::new(&self.waker, PollFlags::IN)];
        match poll(&mut ready, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(receiving(error.into())),
        }
    }
}

fn receiving(source: io::Error) -> Error {
    Error::System { doing: "receiving requests", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_counters_are_added_to_report() {
        let stats = Stats { requests: 1, refused: 2, repeated: 3, ended: 4, trapped: 5 };
        let session = ServeReport { stats, too_long: 6, unsent: 7, sessions: 0 };
        let mut all = ServeReport::default();
        all.add(&session);
        assert_eq!(all, ServeReport { sessions: 1, ..session });
        all.add(&session);
        let twice = Stats { requests: 2, refused: 4, repeated: 6, ended: 8, trapped: 10 };
        assert_eq!(all, ServeReport { stats: twice, too_long: 12, unsent: 14, sessions: 2 });
    }

    #[test]
    fn refusal_is_final_and_unreachable_controller_is_retried() {
        for code in [Code::NotFound, Code::FailedPrecondition, Code::InvalidArgument, Code::Unimplemented] {
            assert!(is_final(&Status::new(code, "another function")), "{code:?}");
        }
        for code in [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            assert!(!is_final(&Status::new(code, "connection refused")), "{code:?}");
        }
    }
}
