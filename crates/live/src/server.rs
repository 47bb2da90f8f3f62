//! A server of a function: its words with the controller by gRPC, its frames by a packet socket.
//!
//! ```text
//!              session (tokio)                              thread
//! controller ◄── words ── channel ◄──────────────── Member ── frames ◄─► packet socket
//!            ─── tasks ─► channel, waker ─────────►
//! ```
//!
//! The thread lives as long as the session: when the controller is lost, so is all that the server had, and it begins
//! anew with the next session.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pathcall_auth::{Peer, Role, Security, Target};
use pathcall_function::handler::{self, Handler, StartError};
use pathcall_function::ir::{Program, Span};
use pathcall_function::live::{Member, Task};
use pathcall_function::serve::{Answer, Server, Stats};
use pathcall_function::split::Split;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ServerHello, ServerTask, ServerWord, server_word};
use pathcall_wire::function::REQUEST;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::oneshot;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::interface::Interface;
use crate::packets::Packets;
use crate::wake::Waker;
use crate::{Error, words};

/// Words and tasks that may wait. Who has more said to it than it can take is lost to the other.
pub(crate) const WAITING_MAX: usize = 1 << 16;
/// How long a lost controller is waited for before it is called again.
const CALL_EVERY: Duration = Duration::from_millis(100);
/// How long the controller may take to answer at all.
const CALL_MAX: Duration = Duration::from_secs(5);
/// A silent connection is asked so often whether the other end is there.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Batches of frames that are worked on before tasks are looked for.
const BATCHES_MAX: usize = 16;

/// File, line and column of a place, as the C compiler is to know it.
pub type Places = Box<dyn Fn(Span) -> Option<(String, usize, usize)> + Send + Sync>;

/// What a server is started with.
pub struct Setup {
    /// Its name in the topology.
    pub name: String,
    /// Where requests come in.
    pub interface: String,
    /// `http://host:port` of the function's controller.
    pub controller: String,
    /// With which certificate it is called, if any.
    pub security: Security,
    /// The function.
    pub program: Program,
    /// The same, split as the element has it.
    pub split: Split,
    /// Of both: [`crate::digest`].
    pub digest: u64,
    /// Places in its file, for errors of the C compiler.
    pub places: Places,
    /// How the handler is contained.
    pub handler: handler::Config,
    /// Where built handlers are kept.
    pub cache: PathBuf,
}

/// What came of one session, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// What the server counted.
    pub stats: Stats,
    /// Frames longer than the interface takes.
    pub too_long: u64,
    /// Responses that the system did not send.
    pub unsent: u64,
    /// Times that it began: once for each session with the controller.
    pub sessions: u64,
}

impl Served {
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

/// Serves until `stop` is there; `ready` is called when the controller has taken it in, each time.
///
/// # Errors
/// The handler, the interface or the socket can't be had, or the controller refuses this server.
pub async fn serve(setup: Setup, mut ready: impl FnMut(), stop: impl Future<Output = ()>) -> Result<Served, Error> {
    let interface = Interface::of(&setup.interface)?;
    // What is wrong with the handler is said before anybody is called.
    drop(setup.start_handler()?);
    let mut packets = Packets::open(&interface, REQUEST)?;
    let channel = setup.security.target(&setup.controller, Peer::new(Role::Element).or(Role::Controller))?;
    let channel = channel.endpoint(|channel| {
        let channel = channel.connect_timeout(CALL_MAX).keep_alive_timeout(CALL_MAX).keep_alive_while_idle(true);
        channel.http2_keep_alive_interval(KEEP_ALIVE)
    });
    let hello = ServerHello { name: setup.name.clone(), digest: setup.digest, mac: interface.mac.to_vec() };
    let setup = Arc::new(setup);
    let mut served = Served::default();
    tokio::pin!(stop);
    loop {
        let called = tokio::select! {
            called = call(&channel, hello.clone()) => called,
            () = &mut stop => return Ok(served),
        };
        let (words, tasks) = match called {
            Ok(session) => session,
            Err(status) if is_final(&status) => {
                let url = setup.controller.clone();
                return Err(Error::Refused { url, said: status.message().to_owned() });
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
        let mut session = Session::begin(Arc::clone(&setup), interface, packets, words)?;
        let stopped = tokio::select! {
            lost = session.listen(&setup.program, tasks) => {
                tracing::warn!(%lost, "the function's controller is lost: this server begins anew");
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

/// What can't become better by calling again.
fn is_final(status: &Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented)
}

async fn call(
    channel: &Target,
    hello: ServerHello,
) -> Result<(mpsc::Sender<ServerWord>, Streaming<ServerTask>), Status> {
    let unreachable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
    let mut client = FunctionClient::new(channel.connect().await.map_err(unreachable)?);
    let (words, said) = mpsc::channel(WAITING_MAX);
    let hello = ServerWord { word: Some(server_word::Word::Hello(hello)) };
    words.try_send(hello).map_err(|_| Status::internal("no room for a hello"))?;
    let tasks = client.serve(ReceiverStream::new(said)).await?.into_inner();
    Ok((words, tasks))
}

/// The thread of one session, and the way to it.
struct Session {
    tasks: mpsc::Sender<Task>,
    waker: Waker,
    ended: oneshot::Receiver<(Packets, Result<Served, Error>)>,
}

impl Session {
    fn begin(
        setup: Arc<Setup>,
        interface: Interface,
        mut packets: Packets,
        words: mpsc::Sender<ServerWord>,
    ) -> Result<Self, Error> {
        let system = |doing| move |source| Error::System { doing, source };
        let waker = Waker::new().map_err(system("making a way to wake a thread"))?;
        let (tasks, told) = mpsc::channel(WAITING_MAX);
        let (end, ended) = oneshot::channel();
        let wakes = waker.clone();
        let work = move || {
            let place = Place { name: setup.interface.clone(), index: interface.index, heard: false };
            let served = Worker::new(&setup, place, told, words, wakes).and_then(|worker| worker.run(&mut packets));
            // Whoever waited for it may be gone.
            drop(end.send((packets, served)));
        };
        thread::Builder::new().name("function-server".into()).spawn(work).map_err(system("starting a thread"))?;
        Ok(Self { tasks, waker, ended })
    }

    /// Passes tasks on until the controller is lost; why.
    async fn listen(&mut self, program: &Program, mut tasks: Streaming<ServerTask>) -> String {
        loop {
            let task = tokio::select! {
                task = tasks.message() => task,
                () = self.tasks.closed() => return "the server's thread has ended".to_owned(),
            };
            let task = match task {
                Ok(Some(task)) => task,
                Ok(None) => return "it has ended the stream".to_owned(),
                Err(status) => return status.message().to_owned(),
            };
            let task = match words::task_in(program, task) {
                Ok(task) => task,
                Err(unfit) => return unfit.to_string(),
            };
            // Closed: said above.
            drop(self.tasks.send(task).await);
            self.waker.wake();
        }
    }

    async fn end(self) -> Result<(Packets, Result<Served, Error>), Error> {
        drop(self.tasks);
        self.waker.wake();
        self.ended.await.map_err(|_| Error::Ended("server's thread"))
    }
}

impl Setup {
    fn start_handler(&self) -> Result<Handler, StartError> {
        Handler::start(&self.program, &*self.places, &self.handler, &self.cache, 0)
    }
}

/// The interface that requests come in at.
struct Place {
    name: String,
    index: u32,
    /// A request has come, since it went down last if it did.
    heard: bool,
}

impl Place {
    /// What the socket received.
    ///
    /// # Errors
    /// What the system says, but that the interface went down: it says so once, and requests come again when it is up.
    fn receive(&mut self, packets: &mut Packets) -> Result<usize, Error> {
        loop {
            match packets.receive() {
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                    tracing::warn!(interface = self.name, "the interface is down: no request comes until it is up");
                    self.heard = false;
                }
                received => {
                    self.heard |= matches!(received, Ok(1..));
                    return received.map_err(receiving);
                }
            }
        }
    }

    /// Looks whether it is still there: of one that was taken away the system says no more than of one that went down.
    ///
    /// # Errors
    /// [`Error::NoInterface`].
    fn look(&self) -> Result<(), Error> {
        if !self.heard && Interface::of(&self.name)?.index != self.index {
            // Another one has its name.
            return Err(Error::NoInterface(self.name.clone()));
        }
        Ok(())
    }
}

/// What the thread owns.
struct Worker {
    member: Member<Handler>,
    place: Place,
    tasks: mpsc::Receiver<Task>,
    words: mpsc::Sender<ServerWord>,
    waker: Waker,
    began: Instant,
    served: Served,
}

impl Worker {
    fn new(
        setup: &Setup,
        place: Place,
        tasks: mpsc::Receiver<Task>,
        words: mpsc::Sender<ServerWord>,
        waker: Waker,
    ) -> Result<Self, Error> {
        // Its number is the controller's business: what it says comes by its own stream.
        let server = Server::new(0, &setup.split, setup.start_handler()?);
        let (began, served) = (Instant::now(), Served::default());
        Ok(Self { member: Member::new(0, server), place, tasks, words, waker, began, served })
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn run(mut self, packets: &mut Packets) -> Result<Served, Error> {
        // What is left from before was for the server that was.
        while self.place.receive(packets)? > 0 {}
        loop {
            self.waker.heard();
            loop {
                let now_us = self.now_us();
                match self.tasks.try_recv() {
                    Ok(task) => self.member.told(now_us, task),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(self.end()),
                }
            }
            self.frames(packets)?;
            self.place.look()?;
            let now_us = self.now_us();
            if now_us >= self.member.next_at() {
                self.member.run(now_us);
            }
            while let Some(word) = self.member.poll() {
                // Full: the controller takes nothing in; closed: it is lost, and the tasks will end.
                if self.words.try_send(words::word_out(word)).is_err() {
                    return Ok(self.end());
                }
            }
            self.wait(packets)?;
        }
    }

    fn end(mut self) -> Served {
        self.served.stats = self.member.stats();
        self.served
    }

    /// Works on frames that are there, a few batches at most.
    fn frames(&mut self, packets: &mut Packets) -> Result<(), Error> {
        for _ in 0..BATCHES_MAX {
            let count = self.place.receive(packets)?;
            if count == 0 {
                break;
            }
            let now_us = self.now_us();
            for at in 0..count {
                let Some(frame) = packets.frame(at) else {
                    self.served.too_long += 1;
                    continue;
                };
                if self.member.handle(now_us, frame) != Answer::Send {
                    packets.drop_frame(at);
                }
            }
            self.served.unsent += packets.send() as u64;
        }
        Ok(())
    }

    /// Waits for frames, tasks, or something to do.
    fn wait(&self, packets: &Packets) -> Result<(), Error> {
        let left = Duration::from_micros(self.member.next_at().saturating_sub(self.now_us()));
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
    fn all_that_was_counted_in_a_session_is_added_to_the_sum() {
        let stats = Stats { requests: 1, refused: 2, repeated: 3, ended: 4, trapped: 5 };
        let session = Served { stats, too_long: 6, unsent: 7, sessions: 0 };
        let mut all = Served::default();
        all.add(&session);
        assert_eq!(all, Served { sessions: 1, ..session });
        all.add(&session);
        let twice = Stats { requests: 2, refused: 4, repeated: 6, ended: 8, trapped: 10 };
        assert_eq!(all, Served { stats: twice, too_long: 12, unsent: 14, sessions: 2 });
    }

    #[test]
    fn refusal_is_final_and_a_controller_that_is_not_reached_is_called_again() {
        for code in [Code::NotFound, Code::FailedPrecondition, Code::InvalidArgument, Code::Unimplemented] {
            assert!(is_final(&Status::new(code, "another function")), "{code:?}");
        }
        for code in [Code::Unavailable, Code::Unknown, Code::Cancelled, Code::DeadlineExceeded, Code::Internal] {
            assert!(!is_final(&Status::new(code, "connection refused")), "{code:?}");
        }
    }
}
