//! An application by the endpoint's own interface, without stubs: put into the element by hand, its owner
//! on host 1 and its callers on the others.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use pathcall_endpoint::driver::client::MapHandle;
use pathcall_endpoint::driver::link::Link;
use pathcall_endpoint::driver::server::ServerHandle;
use pathcall_endpoint::flow::Timing;
use pathcall_endpoint::map::client::ClientConfig;
use pathcall_endpoint::map::lease::LEASE;
use pathcall_endpoint::map::server::{Joined, KEY_MEMORY, Member, Permissions, ServerConfig};
use pathcall_endpoint::map::{ClearPolicy, Grant};
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{ElementApplication, EndpointEntry, InstallRequest, SetEndpointsRequest, SetGroupRequest};
use pathcall_wire::LINEAR_LANES;

use super::{Party, Stage};

/// Of the first application; those of further ones follow.
pub(super) const GAID: u32 = 1 << 20;
pub(super) const EPOCH: u32 = 1;
/// The first application's owner.
pub(super) const SERVER: u32 = 1 << 20;
/// From one application's owner to the next one's.
const ENDPOINTS: u32 = 1 << 10;
/// The host of the first caller; the server is on host 1.
const CALLERS_AT: usize = 2;

/// What an application is for, and what it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sort {
    /// Workers whose arrays are summed; 0: it is keyed.
    pub(crate) threshold: u32,
    /// Clear policy of arrays.
    pub(crate) clear: ClearPolicy,
    /// Whether it takes and gives locks.
    pub(crate) locks: bool,
    /// Whether it counts votes.
    pub(crate) votes: bool,
    /// Rows of the element.
    pub(crate) rows: u32,
    /// Lanes of a row.
    pub(crate) width: u16,
    pub(crate) terms: Terms,
}

/// How an application travels, beside others on the same hosts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// Counted from 0. Those of one stage have as many rows and flows.
    pub(crate) nth: u32,
    /// Flows of a caller.
    pub(crate) flows: u32,
    pub(crate) timing: Timing,
}

impl Default for Terms {
    /// One window of frames fits the queue of a link; the four of a channel that is not told otherwise do not.
    fn default() -> Self {
        Self { nth: 0, flows: 1, timing: Timing::default() }
    }
}

impl Sort {
    fn gaid(&self) -> u32 {
        GAID + self.terms.nth
    }

    fn server(&self) -> u32 {
        SERVER + self.terms.nth * ENDPOINTS
    }

    fn row_base(&self) -> u32 {
        self.rows * self.terms.nth
    }

    /// As if all applications had rows of the greatest width.
    fn lane_base(&self) -> u32 {
        self.row_base() * LINEAR_LANES as u32
    }

    /// First flow slot of a caller, of so many callers.
    fn slot_base(&self, caller: usize, callers: usize) -> u32 {
        self.terms.flows * (self.terms.nth * callers as u32 + caller as u32)
    }
}

/// What callers of an application have sent so far, all together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    /// Frames, without those that were sent again.
    pub(crate) frames: f64,
    /// Their bytes on a link, headers included.
    pub(crate) bytes: f64,
    /// Frames that were sent again.
    pub(crate) again: f64,
}

/// Ethernet, IPv4 and UDP.
const HEADERS_BYTES: f64 = 42.0;

/// An owner with its callers.
pub(crate) struct Application {
    /// With where they run.
    pub(crate) callers: Vec<(MapHandle, Party)>,
    /// Keeps it running.
    _owner: ServerHandle,
    /// Where the owner runs; after what runs there.
    _server: Party,
    /// Whether there is an element that should do the work.
    pub(crate) by_element: bool,
}

impl Application {
    /// On a stage, with the owner's party on host 1 and those of callers on the hosts after it. `look`: calls
    /// look for their answers themselves for so long.
    pub(crate) fn start(stage: &Stage, sort: Sort, server: Party, callers: Vec<Party>, look: Duration) -> Result<Self> {
        let element = stage.element().map(|element| (element.data_addr(), element.control_addr(), element.boot_id()));
        let data = element.map(|(data, ..)| data);
        let at = stage.free_at(1)?;
        let (owner, server_addr) = server.run(move || own(sort, at, data))?;
        let mut links = Vec::new();
        for (i, caller) in callers.iter().enumerate() {
            let at = stage.free_at(CALLERS_AT + i)?;
            links.push(caller.run(move || async move { Ok(Link::bind(at)?) })?);
        }
        let addresses: Vec<SocketAddr> = links.iter().map(Link::local_addr).collect();
        if let Some((_, control, boot_id)) = element {
            let addresses = addresses.clone();
            server.run(move || install(sort, control, boot_id, server_addr, addresses))?;
        }
        let mut handles = Vec::new();
        let all = callers.len();
        for (i, ((caller, link), address)) in callers.into_iter().zip(links).zip(addresses).enumerate() {
            let (endpoint, slot_base) = (sort.server() + 1 + i as u32, sort.slot_base(i, all));
            let (element, flows) = (element.is_some(), sort.terms.flows);
            let member = Member { endpoint, incarnation: endpoint, element, slot_base, flows, terms: 0 };
            let owner = owner.clone();
            let joined = server.run(move || async move { Ok(owner.join(member, Permissions::ALL, Some(address)).await?) })?;
            let config = client(sort, member, joined);
            let spawn = move || async move { Ok(MapHandle::spawn(config, None, link, data, server_addr)) };
            handles.push((caller.run(spawn)?.busy_poll(look), caller));
        }
        Ok(Self { callers: handles, _owner: owner, _server: server, by_element: element.is_some() })
    }
}

impl Application {
    pub(crate) fn sent(&self) -> Sent {
        let stats = self.callers.iter().map(|(handle, _)| handle.stats());
        stats.fold(Sent::default(), |sum, stats| {
            let (all, again) = (stats.frames_sent as f64, stats.retransmits as f64);
            // Those that are sent again are as long as others on the average.
            let length = stats.bytes_sent as f64 / all.max(1.0) + HEADERS_BYTES;
            let frames = all - again;
            Sent { frames: sum.frames + frames, bytes: sum.bytes + frames * length, again: sum.again + again }
        })
    }
}

async fn own(sort: Sort, at: SocketAddr, element: Option<SocketAddr>) -> Result<(ServerHandle, SocketAddr)> {
    let link = Link::bind(at)?;
    let address = link.local_addr();
    let Sort { threshold, locks, votes, rows, width, .. } = sort;
    let config = ServerConfig {
        gaid: sort.gaid(),
        epoch: EPOCH,
        endpoint: sort.server(),
        incarnation: sort.server(),
        grant: element.map(|_| Grant { rows, width }),
        threshold,
        clear: sort.clear,
        mapping: threshold == 0 && !locks && !votes,
        acked: locks || votes,
        locks,
        votes,
        eviction: None,
        key_memory: KEY_MEMORY,
        width,
        lease: LEASE,
        timing: sort.terms.timing,
    };
    Ok((ServerHandle::spawn(config, None, link, element), address))
}

fn client(sort: Sort, member: Member, joined: Joined) -> ClientConfig {
    ClientConfig {
        gaid: sort.gaid(),
        epoch: EPOCH,
        endpoint: member.endpoint,
        incarnation: member.incarnation,
        server: sort.server(),
        server_incarnation: sort.server(),
        slot_base: member.slot_base,
        flows: member.flows,
        element: joined.element,
        inline: false,
        rows: joined.rows,
        width: joined.width,
        worker: joined.worker,
        votes: sort.votes,
        clear: sort.clear,
        start_chunk: joined.start_chunk,
        lease: LEASE,
        era: joined.era,
        timing: sort.terms.timing,
    }
}

/// Makes application and endpoints known to the element.
pub(super) async fn install(
    sort: Sort,
    control: SocketAddr,
    boot_id: u64,
    server: SocketAddr,
    callers: Vec<SocketAddr>,
) -> Result<()> {
    let mut control = ElementClient::connect(format!("http://{control}")).await?;
    let (gaid, owner) = (sort.gaid(), sort.server());
    let application = ElementApplication {
        gaid,
        epoch: EPOCH,
        owner,
        row_base: sort.row_base(),
        rows: sort.rows,
        lane_base: sort.lane_base(),
        width: sort.width.into(),
        token_key: None,
    };
    control.install(InstallRequest { boot_id, application: Some(application) }).await?;
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
    let callers = callers.map(|(i, at)| entry(owner + 1 + i as u32, at, sort.slot_base(i, all), sort.terms.flows));
    let callers: Vec<_> = callers.collect();
    let group = callers.iter().map(|entry| entry.endpoint).collect();
    let endpoints = [vec![entry(owner, server, 0, 0)], callers].concat();
    control.set_endpoints(SetEndpointsRequest { boot_id, endpoints }).await?;
    control.set_group(SetGroupRequest { boot_id, gaid, endpoints: group }).await?;
    Ok(())
}
