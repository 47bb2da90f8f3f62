//! Application on the endpoint's own interface, without stubs: installed in the element without a controller, with its
//! owner on host 1 and its callers on the other hosts.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use pathcall_driver::client::MapHandle;
use pathcall_driver::link::Link;
use pathcall_driver::server::ServerHandle;
use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::server::{Joined, Member, Permissions, ServerConfig};
use pathcall_endpoint::map::{ClearPolicy, RegisterGrant};
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    ElementApplication, EndpointEntry, InstallApplicationRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use pathcall_wire::LINEAR_LANES;

use super::{ElementTestbed, Party};

/// GAID of the first application; further ones follow.
pub(super) const GAID: u32 = 1 << 20;
pub(super) const EPOCH: u32 = 1;
/// Endpoint id of the first application's owner.
pub(super) const SERVER: u32 = 1 << 20;
/// Distance between the owners' ids of two applications.
const ENDPOINTS: u32 = 1 << 10;

/// Kind of an application, and its memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppKind {
    /// Workers whose arrays are summed; 0: keyed application.
    pub(crate) threshold: u32,
    /// Clear policy of arrays.
    pub(crate) clear: ClearPolicy,
    /// True if the application uses locks.
    pub(crate) locks: bool,
    /// True if the application counts votes.
    pub(crate) votes: bool,
    /// Rows of the element.
    pub(crate) rows: u32,
    /// Lanes per row.
    pub(crate) width: u16,
    pub(crate) terms: FlowTerms,
}

/// Flows and timing of an application among others on the same hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowTerms {
    /// Index of the application. Applications of one stage have equal numbers of rows and flows.
    pub(crate) index: u32,
    /// Flows per caller.
    pub(crate) flows: u32,
    pub(crate) timing: FlowTiming,
}

impl Default for FlowTerms {
    /// One window of frames fits the queue of a link; the four windows of a default channel do not.
    fn default() -> Self {
        Self { index: 0, flows: 1, timing: FlowTiming::default() }
    }
}

impl AppKind {
    fn gaid(&self) -> u32 {
        GAID + self.terms.index
    }

    fn server(&self) -> u32 {
        SERVER + self.terms.index * ENDPOINTS
    }

    fn row_base(&self) -> u32 {
        self.rows * self.terms.index
    }

    /// First lane, with rows of the greatest width for all applications.
    fn lane_base(&self) -> u32 {
        self.row_base() * LINEAR_LANES as u32
    }

    /// First flow slot of a caller, of `callers` callers.
    fn slot_base(&self, caller: usize, callers: usize) -> u32 {
        self.terms.flows * (self.terms.index * callers as u32 + caller as u32)
    }
}

/// Frames sent by all callers of an application.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SentCounters {
    /// Frames, without retransmissions.
    pub(crate) frames: f64,
    /// Bytes on a link, headers included.
    pub(crate) bytes: f64,
    /// Retransmitted frames.
    pub(crate) retransmitted: f64,
}

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS_BYTES: f64 = 42.0;

/// Owner with its callers.
pub(crate) struct EndpointApp {
    /// Callers, with their parties.
    pub(crate) callers: Vec<(MapHandle, Rc<Party>)>,
    /// Keeps the owner running.
    _owner: ServerHandle,
    /// Party of the owner; declared after the owner, so that the owner is dropped first.
    _server: Party,
    /// True if there is an element.
    pub(crate) by_element: bool,
}

impl EndpointApp {
    /// Starts an application on a stage, with the owner's party and the callers' parties; callers may share one.
    /// `poll_time`: time for which calls poll for their answers.
    pub(crate) fn start(
        stage: &ElementTestbed,
        app_kind: AppKind,
        server: Party,
        callers: Vec<Rc<Party>>,
        poll_time: Duration,
    ) -> Result<Self> {
        let element = stage.element().map(|element| (element.data_addr(), element.control_addr(), element.boot_id()));
        let data = element.map(|(data, ..)| data);
        let at = server.free_address();
        let (owner, server_addr) = server.run(move || start_owner(app_kind, at, data))?;
        let mut links = Vec::new();
        for caller in &callers {
            let at = caller.free_address();
            links.push(caller.run(move || async move { Ok(Link::bind(at)?) })?);
        }
        let addresses: Vec<SocketAddr> = links.iter().map(Link::local_addr).collect();
        if let Some((_, control, boot_id)) = element {
            let addresses = addresses.clone();
            server.run(move || install(app_kind, control, boot_id, server_addr, addresses))?;
        }
        let mut handles = Vec::new();
        let all = callers.len();
        for (i, ((caller, link), address)) in callers.into_iter().zip(links).zip(addresses).enumerate() {
            let (endpoint, slot_base) = (app_kind.server() + 1 + i as u32, app_kind.slot_base(i, all));
            let (element, flows) = (element.is_some(), app_kind.terms.flows);
            let member = Member { endpoint, incarnation: endpoint, element, slot_base, flows, terms: 0 };
            let owner = owner.clone();
            let joined = server.run(move || async move {
                Ok(owner.join(member, Permissions::ALL, Some(address), [0; 16], None).await?)
            })?;
            let config = client(app_kind, member, joined);
            let spawn = move || async move { Ok(MapHandle::spawn(config, None, link, data, server_addr)) };
            handles.push((caller.run(spawn)?.busy_poll(poll_time), caller));
        }
        Ok(Self { callers: handles, _owner: owner, _server: server, by_element: element.is_some() })
    }
}

impl EndpointApp {
    pub(crate) fn sent(&self) -> SentCounters {
        let stats = self.callers.iter().map(|(handle, _)| handle.stats());
        stats.fold(SentCounters::default(), |sum, stats| {
            let (all, retransmitted) = (stats.frames_sent as f64, stats.retransmits as f64);
            // Retransmitted frames have the average length.
            let length = stats.bytes_sent as f64 / all.max(1.0) + HEADERS_BYTES;
            let frames = all - retransmitted;
            SentCounters {
                frames: sum.frames + frames,
                bytes: sum.bytes + frames * length,
                retransmitted: sum.retransmitted + retransmitted,
            }
        })
    }
}

async fn start_owner(
    app_kind: AppKind,
    at: SocketAddr,
    element: Option<SocketAddr>,
) -> Result<(ServerHandle, SocketAddr)> {
    let link = Link::bind(at)?;
    let address = link.local_addr();
    let AppKind { threshold, locks, votes, rows, width, .. } = app_kind;
    let config = ServerConfig {
        gaid: app_kind.gaid(),
        epoch: EPOCH,
        endpoint: app_kind.server(),
        incarnation: app_kind.server(),
        grant: element.map(|_| RegisterGrant { rows, width }),
        threshold,
        clear: app_kind.clear,
        mapping: threshold == 0 && !locks && !votes,
        acked: locks || votes,
        locks,
        votes,
        width,
        timing: app_kind.terms.timing,
        ..ServerConfig::default()
    };
    Ok((ServerHandle::spawn(config, None, link, element), address))
}

fn client(app_kind: AppKind, member: Member, joined: Joined) -> ClientConfig {
    ClientConfig {
        gaid: app_kind.gaid(),
        epoch: EPOCH,
        endpoint: member.endpoint,
        incarnation: member.incarnation,
        server: app_kind.server(),
        server_incarnation: app_kind.server(),
        slot_base: member.slot_base,
        flows: member.flows,
        element: joined.element,
        rows: joined.rows,
        width: joined.width,
        worker: joined.worker,
        votes: app_kind.votes,
        clear: app_kind.clear,
        start_chunk: joined.start_chunk,
        era: joined.era,
        timing: app_kind.terms.timing,
        ..ClientConfig::default()
    }
}

/// Registers application and endpoints in the element.
pub(super) async fn install(
    app_kind: AppKind,
    control: SocketAddr,
    boot_id: u64,
    server: SocketAddr,
    callers: Vec<SocketAddr>,
) -> Result<()> {
    let mut control = ElementClient::connect(format!("http://{control}")).await?;
    let (gaid, owner) = (app_kind.gaid(), app_kind.server());
    let application = ElementApplication {
        gaid,
        epoch: EPOCH,
        owner,
        row_base: app_kind.row_base(),
        rows: app_kind.rows,
        lane_base: app_kind.lane_base(),
        width: app_kind.width.into(),
        token_key: None,
    };
    control.install_application(InstallApplicationRequest { boot_id, application: Some(application) }).await?;
    let entry = |endpoint: u32, address: SocketAddr, slot_base, slots| EndpointEntry {
        endpoint,
        incarnation: endpoint,
        data_address: address.to_string(),
        gaid,
        slot_base,
        slots,
    };
    let all = callers.len();
    let callers = callers.into_iter().enumerate();
    let callers =
        callers.map(|(i, at)| entry(owner + 1 + i as u32, at, app_kind.slot_base(i, all), app_kind.terms.flows));
    let callers: Vec<_> = callers.collect();
    let group = callers.iter().map(|entry| entry.endpoint).collect();
    let endpoints = [vec![entry(owner, server, 0, 0)], callers].concat();
    control.set_endpoints(SetEndpointsRequest { boot_id, endpoints }).await?;
    control.set_multicast_group(SetMulticastGroupRequest { boot_id, gaid, endpoints: group }).await?;
    Ok(())
}
