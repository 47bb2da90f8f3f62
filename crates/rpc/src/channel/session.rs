//! A channel's part in one application: joined at first use, and anew when it is lost.
//!
//! ```text
//! Join ─► server: who I am, where my map frames come from     (a stream: its end is my leave)
//!      ◄─ grant: who I am to be, where the element is         (its end: the server is gone)
//! ```
//!
//! Each time it is joined the caller is a new incarnation, so what was left of the last one on the
//! way can't be taken for its own. A server that does not answer by UDP is joined once more, by a
//! caller whose frames are carried over HTTP/2; a later join tries UDP again.

mod spent;

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pathcall_endpoint::driver::client::{MapHandle, Teller};
use pathcall_endpoint::driver::link::{Link, Sharing};
use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::{ClientConfig, ClientStats, Reach};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::{Applied, CallError, Operation, Output, Renewal};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{AppliedFrame, JoinGrant, JoinRequest};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tonic::{Code, Status, Streaming};

use super::builder::Options;
use super::carry::Carry;
use super::stats::{ApplicationStats, CarriedStats, Counter, sum, sum_carried};
use super::transport::Transport;
use crate::application::Application;
use crate::names::Known;
use crate::status;

/// A server that has not answered a join after this time is taken for unavailable.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// A server that has not answered by UDP after this time can't be reached by it, or can't reach us:
/// the first time, and when it was so the last time.
const UDP_TIMEOUT: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(250)];

/// The place of an application in a channel.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) application: Application,
    options: Options,
    current: Mutex<Option<Arc<Session>>>,
    /// Held while the application is joined: calls that come meanwhile wait for it.
    joining: tokio::sync::Mutex<()>,
    joins: Counter,
    /// Sessions that were spent, on their way out: whether the server has all that was done in them.
    leaving: tokio::sync::Mutex<Option<JoinHandle<bool>>>,
    /// What the sessions before the current one did.
    past: Mutex<(ClientStats, CarriedStats)>,
    /// The server's incarnation that holds something of this caller.
    invested: Mutex<Option<u32>>,
}

impl Slot {
    pub(super) fn new(application: Application, options: Options) -> Self {
        Self {
            application,
            options,
            current: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            joins: Counter::default(),
            leaving: tokio::sync::Mutex::default(),
            past: Mutex::default(),
            invested: Mutex::default(),
        }
    }

    /// The session, joined if need be for a call of `method`.
    pub(super) async fn session(&self, method: &Method, transport: &Transport) -> Result<Arc<Session>, Status> {
        match self.live() {
            Some(session) => Ok(session),
            // Once for many calls, in a future of its own.
            None => Box::pin(self.joined(method, transport)).await,
        }
    }

    async fn joined(&self, method: &Method, transport: &Transport) -> Result<Arc<Session>, Status> {
        let _joining = self.joining.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        self.follow_last().await;
        let join = Join { application: &self.application, options: &self.options, method, transport };
        let session = Arc::new(join.run().await?);
        self.joins.add();
        *lock(&self.current) = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Notes that the session's server holds something of this caller now.
    pub(super) fn invest(&self, method: &Method, session: &Session) {
        if matches!(method.kind, Kind::Add { .. } | Kind::Count { .. }) {
            lock(&self.invested).get_or_insert(session.server);
        }
    }

    /// The same of a call with an id, past every session.
    pub(super) fn invest_in(&self, server: u32) {
        lock(&self.invested).get_or_insert(server);
    }

    /// A server that started anew has nothing of what its predecessor had in memory: whoever asks
    /// for it is told so, once, and never gets a silent zero (NOTES: "Who owns the truth").
    pub(super) fn check_loss(&self, method: &Method, session: &Session) -> Result<(), Status> {
        let asks = matches!(method.kind, Kind::Query | Kind::Add { get: true, .. } | Kind::Clear);
        let mut invested = lock(&self.invested);
        if asks && invested.is_some_and(|server| server != session.server) {
            *invested = Some(session.server);
            let (path, app) = (method.path, method.app);
            return Err(Status::data_loss(format!(
                "{path}: the server of {app} has started anew, and what this caller had there was only in its memory"
            )));
        }
        Ok(())
    }

    pub(super) fn stats(&self) -> ApplicationStats {
        let current = lock(&self.current).as_ref().map(|session| (session.handle.stats(), session.handle.carried()));
        let (past, current) = (*lock(&self.past), current.unwrap_or_default());
        let (map, carried) = (sum(past.0, current.0), sum_carried(past.1, current.1));
        ApplicationStats { name: self.application.name, joins: self.joins.read(), map, carried }
    }

    fn live(&self) -> Option<Arc<Session>> {
        let mut current = lock(&self.current);
        let session = current.as_mut().filter(|session| !session.is_over())?;
        (!self.is_spent(session)).then(|| Arc::clone(session))
    }

    /// Leaves the application, if it has joined it; whether the server has all that was done.
    pub(super) async fn close(&self) -> bool {
        let _joining = self.joining.lock().await;
        let ended = lock(&self.current).as_ref().map(|session| session.handle.ended());
        self.retire();
        let before = self.left().await;
        match ended {
            Some(ended) => ended.await && before,
            None => before,
        }
    }

    /// Leaves with the last session, which is over or spent.
    fn retire(&self) {
        if let Some(session) = lock(&self.current).take() {
            let mut past = lock(&self.past);
            let carried = CarriedStats { open: 0, ..session.handle.carried() };
            *past = (sum(past.0, session.handle.stats()), sum_carried(past.1, carried));
        }
    }
}

/// Held only for a moment, by code that does not panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member of an application.
#[derive(Debug)]
pub(super) struct Session {
    handle: MapHandle,
    /// The server's incarnation.
    pub(super) server: u32,
    /// Numbers that it gave to long keys.
    pub(super) known: Known,
    /// Why it is over, once it is.
    over: watch::Sender<Option<Arc<str>>>,
    /// Reads the join's stream until the map's task has ended; the stream's end is the caller's leave.
    watcher: AbortHandle,
}

impl Session {
    /// Does the operation, and gives up when the session is over.
    pub(super) async fn call(&self, method: &Method, operation: Operation) -> Result<Output, Status> {
        let mut over = self.over.subscribe();
        let outcome = tokio::select! {
            biased;
            outcome = self.handle.call(operation) => outcome,
            reason = over.wait_for(Option::is_some) => {
                let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
                return Err(Status::unavailable(format!("{} ({}): {reason}", method.path, method.app)));
            }
        };
        outcome.map_err(|error| {
            // A round that failed is the end of the place in its application: another one is sure.
            let of_round = matches!(method.kind, Kind::Sum { .. })
                && matches!(error, CallError::Disagree { .. } | CallError::Overflow { .. });
            if of_round || matches!(error, CallError::Unreachable { .. } | CallError::Spent | CallError::Closed) {
                self.end(error.to_string().into());
            }
            status::of_call(method, &error)
        })
    }

    fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Leaves the application; whoever still waits for an answer is told the reason.
    fn end(&self, reason: Arc<str>) {
        self.over.send_replace(Some(reason));
        self.watcher.abort();
    }
}

/// One attempt to join.
struct Join<'a> {
    application: &'a Application,
    options: &'a Options,
    /// The call that needs it.
    method: &'a Method,
    transport: &'a Transport,
}

impl Join<'_> {
    async fn run(self) -> Result<Session, Status> {
        let mut ip = match self.options.local_address {
            Some(ip) => ip,
            None => self.transport.any_address().await.map_err(|error| {
                Status::unavailable(format!("{}: the server's name: {error}", self.transport.uri()))
            })?,
        };
        let mut udp = true;
        loop {
            let link = bind(ip, self.options.shared_memory)?;
            let incarnation = rand::random_range(1..=u32::MAX);
            let port = if udp { link.local_addr().port() } else { 0 };
            let (grant, stream) = self.request(port, incarnation).await?;
            let Some(server) = self.transport.peer() else {
                return Err(Status::internal(format!("{}: no connection to join over", self.transport.uri())));
            };
            // A name with addresses in both families: the connection is in the other one.
            if self.options.local_address.is_none() && ip.is_ipv4() != server.is_ipv4() {
                ip = self.transport.any_address().await.map_err(|error| Status::unavailable(error.to_string()))?;
                continue;
            }
            let session = self.session(link, incarnation, server, &grant, stream, !udp)?;
            if udp {
                let blocked = !self.answers(&session).await;
                self.transport.note_udp(blocked);
                if blocked {
                    udp = false;
                    session.end("UDP does not get through".into());
                    continue;
                }
            }
            return Ok(session);
        }
    }

    /// Whether the server answers by UDP.
    async fn answers(&self, session: &Session) -> bool {
        let mut reach = session.handle.reach();
        let answers = reach.wait_for(|reach| *reach == Reach::Answers);
        let limit = UDP_TIMEOUT[usize::from(self.transport.udp_blocked())];
        tokio::time::timeout(limit, answers).await.is_ok_and(|answers| answers.is_ok())
    }

    async fn request(&self, udp_port: u16, incarnation: u32) -> Result<(JoinGrant, Streaming<JoinGrant>), Status> {
        let request = JoinRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            udp_port: udp_port.into(),
            incarnation,
            flows: self.options.flows,
        };
        let mut client = PeerClient::new(self.transport.channel());
        let first = async {
            let mut stream = client.join(request).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the server ended the join"))
        };
        match tokio::time::timeout(JOIN_TIMEOUT, first).await {
            Ok(outcome) => outcome.map_err(|error| self.refused(&error)),
            Err(_) => Err(Status::unavailable(format!(
                "{} did not answer the join of {} in {} s",
                self.transport.uri(),
                self.application.name,
                JOIN_TIMEOUT.as_secs()
            ))),
        }
    }

    fn refused(&self, error: &Status) -> Status {
        let (path, name, uri) = (self.method.path, self.application.name, self.transport.uri());
        match error.code() {
            Code::Unimplemented => Status::failed_precondition(format!(
                "{path} has the filter {name} but the server at {uri} does not speak Pathcall: add pathcall::Server's layer there"
            )),
            code => Status::new(code, format!("{path}: joining {name} at {uri}: {}", error.message())),
        }
    }

    fn session(
        &self,
        link: Link,
        incarnation: u32,
        server: IpAddr,
        grant: &JoinGrant,
        stream: Streaming<JoinGrant>,
        carried: bool,
    ) -> Result<Session, Status> {
        let nonsense = |what| {
            let (name, uri) = (self.application.name, self.transport.uri());
            Status::internal(format!("{uri} granted the join of {name} with {what}"))
        };
        let udp_port = u16::try_from(grant.server_udp_port).map_err(|_| nonsense("a port that is none"))?;
        let element: Option<SocketAddr> = match grant.element_address.as_str() {
            "" => None,
            address => Some(address.parse().map_err(|_| nonsense("an element address that is none"))?),
        };
        let config = ClientConfig {
            gaid: grant.gaid,
            epoch: grant.epoch,
            endpoint: grant.endpoint,
            incarnation,
            server: grant.server,
            server_incarnation: grant.server_incarnation,
            slot_base: grant.slot_base,
            flows: grant.flows.max(1),
            // Without a slot in its repeat filter the element can't take this caller's frames.
            element: element.is_some() && grant.flows > 0,
            inline: false,
            rows: grant.rows,
            width: u16::try_from(grant.width).map_err(|_| nonsense("a row width that is none"))?,
            worker: u16::try_from(grant.worker).map_err(|_| nonsense("a worker that is none"))?,
            votes: self.application.votes,
            clear: self.application.clear,
            start_chunk: grant.start_chunk,
            lease: Duration::from_millis(grant.lease_ms),
            era: Era::from_number(grant.era),
            timing: Timing::default(),
        };
        let key = grant.token_key.map(|key| TokenKey::new(key.into()));
        let over = watch::Sender::new(None);
        let handle = MapHandle::spawn(config, key, link, element, SocketAddr::new(server, udp_port))
            .busy_poll(self.options.busy_poll)
            .spent_after(self.options.flow_frames);
        let (teller, ended, over_too) = (handle.teller(), handle.ended(), over.clone());
        let carry = Carry {
            channel: self.transport.channel(),
            application: self.application.name,
            endpoint: grant.endpoint,
            incarnation,
            map: handle.feed(),
        };
        let carrying = carry.keep(handle.reach(), carried);
        let uri = self.transport.uri().to_string();
        let watcher = tokio::spawn(async move {
            let roads = async {
                carrying.await;
                pending::<()>().await;
            };
            tokio::select! {
                () = follow(stream, teller, over_too, uri) => {}
                () = roads => {}
                // What only the element had is the server's by now: the stream may end.
                _ = ended => {}
            }
        });
        let watcher = watcher.abort_handle();
        Ok(Session { handle, server: grant.server_incarnation, known: Known::default(), over, watcher })
    }
}

/// Reads the join's stream to its end, which is the session's, and tells the map of new epochs.
async fn follow(mut stream: Streaming<JoinGrant>, map: Teller, over: watch::Sender<Option<Arc<str>>>, uri: String) {
    let reason = loop {
        match stream.message().await {
            Ok(Some(grant)) => {
                let element: Option<SocketAddr> = grant.element_address.parse().ok();
                map.renew(renewal(&grant, element.is_some()), element);
            }
            Ok(None) => break format!("the server at {uri} has left"),
            Err(status) => break format!("the connection to the server at {uri} is lost: {}", status.message()),
        }
    };
    over.send_replace(Some(reason.into()));
}

fn renewal(grant: &JoinGrant, element: bool) -> Renewal {
    let applied = grant.applied.iter().map(|&AppliedFrame { flow, seq, left_out }| Applied { flow, seq, left_out });
    Renewal {
        epoch: grant.epoch,
        element,
        slot_base: grant.slot_base,
        era: Era::from_number(grant.era),
        committed: grant.committed,
        applied: applied.collect(),
    }
}

fn bind(ip: IpAddr, shared_memory: bool) -> Result<Link, Status> {
    let mut link = Link::bind(SocketAddr::new(ip, 0))
        .map_err(|error| Status::unavailable(format!("can't send map frames from {ip}: {error}")))?;
    if shared_memory {
        // A system without it has UDP.
        let _ = link.share_memory(Sharing::Seek);
    }
    Ok(link)
}
