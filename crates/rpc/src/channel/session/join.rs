//! Attempt to join an application: with UDP, or else with frames carried in a stream of the gRPC connection.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use http::HeaderMap;
use pathcall_driver::client::MapHandle;
use pathcall_driver::link::{Link, SharingRole};
use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::client::{ClientConfig, ServerReachability};
use pathcall_endpoint::map::lease::Era;
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{JoinGrant, JoinRequest};
use pathcall_wire::TokenKey;
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};

use super::super::builder::ChannelOptions;
use super::super::transport::Transport;
use super::MapSession;
use super::admissions::Admissions;
use super::carry::FrameCarrier;
use super::continuity::SumPosition;
use super::resume::{ResumingCaller, read_grants};
use crate::application::Application;
use crate::headers;
use crate::key_numbers::KnownKeyNumbers;
use crate::process_timeout;

/// Time limit for the server's answer to a join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limits for the server's first answer by UDP: normally, and if UDP was blocked at the last attempt.
const UDP_TIMEOUT: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(250)];

/// Attempt to join.
pub(super) struct JoinAttempt<'a> {
    pub(super) application: &'a Application,
    pub(super) options: &'a ChannelOptions,
    /// Call that needs the membership.
    pub(super) method: &'a Method,
    /// Metadata of the call.
    pub(super) headers: &'a HeaderMap,
    pub(super) transport: &'a Transport,
    /// Where the caller's next sum begins.
    pub(super) sums: Option<SumPosition>,
}

impl JoinAttempt<'_> {
    pub(super) async fn run(self) -> Result<MapSession, Status> {
        let mut ip = match self.options.local_address {
            Some(ip) => ip,
            None => self.transport.any_address().await.map_err(|error| {
                Status::unavailable(format!("{}: cannot resolve the server's name: {error}", self.transport.uri()))
            })?,
        };
        let mut udp = true;
        loop {
            let link = bind(ip, self.options.shared_memory)?;
            let incarnation = rand::random_range(1..=u32::MAX);
            let port = if udp { link.local_addr().port() } else { 0 };
            let asked = Instant::now();
            let (grant, stream) = self.request(port, incarnation).await?;
            let Some(server) = self.transport.peer() else {
                let what = format!("{}: the connection to the server broke before the join", self.transport.uri());
                return Err(Status::internal(what));
            };
            // The server's name has addresses of both families, and the connection uses the other one.
            if self.options.local_address.is_none() && ip.is_ipv4() != server.is_ipv4() {
                ip = self.transport.any_address().await.map_err(|error| Status::unavailable(error.to_string()))?;
                continue;
            }
            let session = self.session(link, incarnation, server, &grant, stream, (asked, !udp))?;
            if udp {
                let blocked = !self.answers(&session).await;
                self.transport.note_udp(blocked);
                if blocked {
                    udp = false;
                    session.end("UDP is blocked".into());
                    continue;
                }
            }
            return Ok(session);
        }
    }

    /// Whether the server answers by UDP.
    async fn answers(&self, session: &MapSession) -> bool {
        let mut reach = session.handle.reachability();
        let answers = reach.wait_for(|reach| *reach == ServerReachability::Answers);
        let limit = UDP_TIMEOUT[usize::from(self.transport.udp_blocked())];
        process_timeout::timeout(limit, answers).await.is_ok_and(|answers| answers.is_ok())
    }

    async fn request(&self, udp_port: u16, incarnation: u32) -> Result<(JoinGrant, Streaming<JoinGrant>), Status> {
        let request = self.join_request(udp_port, incarnation);
        let mut client = PeerClient::new(self.transport.channel());
        let first = async {
            let mut stream = client.join(headers::request_with(self.headers, request)).await?.into_inner();
            let grant = stream.message().await?;
            grant.map(|grant| (grant, stream)).ok_or_else(|| Status::unavailable("the server ended the join"))
        };
        match process_timeout::timeout(JOIN_TIMEOUT, first).await {
            Ok(outcome) => outcome.map_err(|error| self.refused(&error)),
            Err(_) => Err(Status::unavailable(format!(
                "{} did not answer the join of {} in {} s",
                self.transport.uri(),
                self.application.name,
                JOIN_TIMEOUT.as_secs()
            ))),
        }
    }

    fn join_request(&self, udp_port: u16, incarnation: u32) -> JoinRequest {
        JoinRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            udp_port: udp_port.into(),
            incarnation,
            flows: self.options.flows,
            method: self.method.path.into(),
            summed_state: self.sums.map_or(0, |sums| sums.server),
            next_chunk: self.sums.map_or(0, |sums| sums.chunk),
            ..JoinRequest::default()
        }
    }

    fn refused(&self, error: &Status) -> Status {
        let (path, name, uri) = (self.method.path, self.application.name, self.transport.uri());
        let error = self.transport.explain(error.clone());
        match error.code() {
            Code::Unimplemented => Status::failed_precondition(format!(
                "{path} has the filter {name} but the server at {uri} does not speak Pathcall: add \
                 pathcall::Layer there"
            )),
            // With the details and metadata that the service's checks return.
            code => Status::with_details_and_metadata(
                code,
                format!("{path}: joining {name} at {uri}: {}", error.message()),
                error.details().to_vec().into(),
                error.metadata().clone(),
            ),
        }
    }

    fn session(
        &self,
        link: Link,
        incarnation: u32,
        server: IpAddr,
        grant: &JoinGrant,
        stream: Streaming<JoinGrant>,
        (asked, carried): (Instant, bool),
    ) -> Result<MapSession, Status> {
        let invalid_grant = |what| {
            let (name, uri) = (self.application.name, self.transport.uri());
            Status::internal(format!("{uri} granted the join of {name} with {what}"))
        };
        let udp_port = u16::try_from(grant.server_udp_port).map_err(|_| invalid_grant("an invalid UDP port"))?;
        let element: Option<SocketAddr> = match grant.element_address.as_str() {
            "" => None,
            address => Some(address.parse().map_err(|_| invalid_grant("an invalid element address"))?),
        };
        let local_port = link.local_addr().port();
        // All fields are written, so that the compiler names a forgotten one.
        let config = ClientConfig {
            gaid: grant.gaid,
            epoch: grant.epoch,
            endpoint: grant.endpoint,
            incarnation,
            server: grant.server,
            server_incarnation: grant.server_incarnation,
            slot_base: grant.slot_base,
            flows: grant.flows.max(1),
            // Without a slot in its repeat filter the element cannot process this caller's frames.
            element: element.is_some() && grant.flows > 0,
            inline: false,
            rows: grant.rows,
            width: u16::try_from(grant.width).map_err(|_| invalid_grant("an invalid row width"))?,
            worker: u16::try_from(grant.worker).map_err(|_| invalid_grant("an invalid worker number"))?,
            votes: self.application.votes,
            clear: self.application.clear,
            start_chunk: grant.start_chunk,
            lease: Duration::from_millis(grant.lock_lease_ms),
            era: Era::from_number(grant.lock_era),
            timing: FlowTiming::default(),
        };
        let key = grant.token_key.map(|key| TokenKey::new(key.into()));
        let over = watch::Sender::new(None);
        let by_element = Arc::new(AtomicBool::new(config.element));
        let element_too = Arc::clone(&by_element);
        let handle = MapHandle::spawn(config, key, link, element, SocketAddr::new(server, udp_port))
            .busy_poll(self.options.busy_poll)
            .spent_after(self.options.flow_frames);
        let (port, ended, over_too) = (handle.port(), handle.ended(), over.clone());

        let carry = FrameCarrier {
            channel: self.transport.channel(),
            application: self.application.name,
            endpoint: grant.endpoint,
            incarnation,
            session: grant.session.clone(),
            map: port.clone(),
        };
        let carrying = carry.run_carrier(handle.reachability(), carried);
        let uri = self.transport.uri().to_string();
        let (suspend, suspended) = watch::channel(false);
        let suspended = grant.resumable.then_some(suspended);
        let resuming = grant.resumable.then(|| ResumingCaller {
            suspend,
            request: JoinRequest {
                resumed_endpoint: grant.endpoint,
                session: grant.session.clone(),
                ..self.join_request(if carried { 0 } else { local_port }, incarnation)
            },
            headers: self.headers.clone(),
            transport: self.transport.clone(),
        });
        let watcher = tokio::spawn(async move {
            let carrying_or_pending = async {
                carrying.await;
                pending::<()>().await;
            };
            tokio::select! {
                () = read_grants(stream, (port, element_too), over_too, (uri, resuming)) => {}
                () = carrying_or_pending => {}
                // The server has all values that only the element had: the stream may end.
                _ = ended => {}
            }
        });
        let watcher = watcher.abort_handle();
        // Only an address of this host can be bound.
        let is_local = std::net::UdpSocket::bind((server, 0)).is_ok();
        // An older server has no id of its state.
        let server = if grant.state_id == 0 { grant.server_incarnation } else { grant.state_id };
        let endpoint = grant.endpoint;
        let (hold, paths) = (Duration::from_millis(grant.admission_ms), grant.admitted_methods.clone());
        let admissions = Arc::new(Admissions::new(grant.session.clone(), hold, asked, self.headers, paths));
        Ok(MapSession {
            handle,
            endpoint,
            incarnation,
            admissions,
            server,
            start_chunk: grant.start_chunk,
            suspended,
            by_element,
            is_local,
            known: KnownKeyNumbers::default(),
            over,
            watcher,
        })
    }
}

fn bind(ip: IpAddr, shared_memory: bool) -> Result<Link, Status> {
    let mut link = Link::bind(SocketAddr::new(ip, 0))
        .map_err(|error| Status::unavailable(format!("cannot send map frames from {ip}: {error}")))?;
    if shared_memory {
        // On a system without shared memory, frames go by UDP.
        let _ = link.share_memory(SharingRole::Request);
    }
    Ok(link)
}
