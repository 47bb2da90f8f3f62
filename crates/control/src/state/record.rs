//! What outlives the controller: the records that the store keeps, and changes of them.
//!
//! A record is everything that was ever told to anyone; what is not in it (streams, pushes under
//! way) is found again when the peers connect. The records are protobuf messages, so a later
//! version may add fields.

use pathcall_proto::v1::TokenKey;

/// Where ids began and go on. None is ever given out twice.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IdsRecord {
    /// Next application.
    #[prost(uint32, tag = "1")]
    pub gaid: u32,
    /// Next endpoint.
    #[prost(uint32, tag = "2")]
    pub endpoint: u32,
    /// Next element.
    #[prost(uint32, tag = "3")]
    pub element: u32,
    /// Epoch that a new application starts with: random, so that a controller that has lost its
    /// store does not repeat what elements and callers still hold.
    #[prost(uint32, tag = "4")]
    pub first_epoch: u32,
    /// The first of each kind: random, too.
    #[prost(uint32, tag = "5")]
    pub first: u32,
}

/// An application and its owner. It is kept when its owner dies: its name keeps its GAID.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ApplicationRecord {
    /// Global application id.
    #[prost(uint32, tag = "1")]
    pub gaid: u32,
    /// `AppName` of its filters.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Grows whenever its registers can no longer be trusted.
    #[prost(uint32, tag = "3")]
    pub epoch: u32,
    /// Digest of its filters.
    #[prost(fixed64, tag = "4")]
    pub filter_digest: u64,
    /// Lanes in one register row.
    #[prost(uint32, tag = "5")]
    pub width: u32,
    /// Register rows wished for.
    #[prost(uint32, tag = "6")]
    pub rows: u32,
    /// Incarnation of the owner.
    #[prost(uint32, tag = "7")]
    pub incarnation: u32,
    /// Endpoint id of the owner.
    #[prost(uint32, tag = "8")]
    pub endpoint: u32,
    /// UDP address of the owner, ip:port.
    #[prost(string, tag = "9")]
    pub data_address: String,
    /// gRPC address of the owner.
    #[prost(string, tag = "10")]
    pub service_address: String,
    /// The reserved piece of an element's memory.
    #[prost(message, optional, tag = "11")]
    pub memory: Option<MemoryRecord>,
    /// Whether the owner's lease runs.
    #[prost(bool, tag = "12")]
    pub owned: bool,
    /// What signs its frames, if they carry tokens: a new one for each owner.
    #[prost(message, optional, tag = "13")]
    pub token_key: Option<TokenKey>,
}

impl ApplicationRecord {
    /// Where its owner is, for people: not every server says where its gRPC calls go.
    pub(super) fn owner(&self) -> String {
        match &self.service_address[..] {
            "" => format!("a server at {} (UDP)", self.data_address),
            address => address.to_owned(),
        }
    }
}

/// A reserved piece of an element's memory: `rows` register rows and `rows * width` lanes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MemoryRecord {
    /// The element.
    #[prost(uint32, tag = "1")]
    pub element: u32,
    /// First row.
    #[prost(uint32, tag = "2")]
    pub row_base: u32,
    /// Number of rows.
    #[prost(uint32, tag = "3")]
    pub rows: u32,
    /// First lane.
    #[prost(uint32, tag = "4")]
    pub lane_base: u32,
    /// Lanes in one row.
    #[prost(uint32, tag = "5")]
    pub width: u32,
}

/// A caller of an application.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndpointRecord {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub endpoint: u32,
    /// The application.
    #[prost(uint32, tag = "2")]
    pub gaid: u32,
    /// Its incarnation.
    #[prost(uint32, tag = "3")]
    pub incarnation: u32,
    /// Its UDP address, ip:port.
    #[prost(string, tag = "4")]
    pub data_address: String,
    /// First leased slot of the repeat filter of the application's element.
    #[prost(uint32, tag = "5")]
    pub slot_base: u32,
    /// Leased slots; 0: the caller works past the element, or is a pool's.
    #[prost(uint32, tag = "6")]
    pub slots: u32,
    /// Of a pool's caller: the endpoint of the server that vouches for it; 0: none does.
    #[prost(uint32, tag = "7")]
    pub server: u32,
}

/// A pool, as long as it has servers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PoolRecord {
    /// Global application id, that no application has.
    #[prost(uint32, tag = "1")]
    pub gaid: u32,
    /// What its servers join it by.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Grows whenever the servers in the table change.
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// What signs its frames, if they carry tokens.
    #[prost(message, optional, tag = "4")]
    pub token_key: Option<TokenKey>,
    /// Those in the table by SID, and among them those whose lease lapses.
    #[prost(message, repeated, tag = "5")]
    pub servers: Vec<PoolServerRecord>,
    /// The element that has its table.
    #[prost(uint32, optional, tag = "6")]
    pub element: Option<u32>,
}

/// A server of a pool.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PoolServerRecord {
    /// Its endpoint.
    #[prost(uint32, tag = "1")]
    pub endpoint: u32,
    /// Its incarnation.
    #[prost(uint32, tag = "2")]
    pub incarnation: u32,
    /// Its UDP address, ip:port.
    #[prost(string, tag = "3")]
    pub data_address: String,
    /// Its gRPC address.
    #[prost(string, tag = "4")]
    pub service_address: String,
    /// Whether it is in the table.
    #[prost(bool, tag = "5")]
    pub serving: bool,
}

/// An element: one start of it, at one address.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ElementRecord {
    /// Its id.
    #[prost(uint32, tag = "1")]
    pub element: u32,
    /// Its own endpoint id.
    #[prost(uint32, tag = "2")]
    pub endpoint: u32,
    /// Which start of it.
    #[prost(fixed64, tag = "3")]
    pub boot_id: u64,
    /// UDP address, ip:port.
    #[prost(string, tag = "4")]
    pub data_address: String,
    /// gRPC address of its control service, `http://ip:port`.
    #[prost(string, tag = "5")]
    pub control_address: String,
    /// Register rows it has.
    #[prost(uint32, tag = "6")]
    pub rows: u32,
    /// Lanes it has.
    #[prost(uint32, tag = "7")]
    pub lanes: u32,
    /// Slots it has.
    #[prost(uint32, tag = "8")]
    pub slots: u32,
    /// Whether its lease runs.
    #[prost(bool, tag = "9")]
    pub alive: bool,
    /// Applications whose last removal this start of the element has not confirmed, ascending. They
    /// may have an entry there that is older than the present one, so they are removed first.
    #[prost(uint32, repeated, tag = "10")]
    pub stale_applications: Vec<u32>,
    /// The same of endpoints.
    #[prost(uint32, repeated, tag = "11")]
    pub stale_endpoints: Vec<u32>,
    /// Slots of callers that have left, in that order, until nothing of theirs can be on its way.
    #[prost(message, repeated, tag = "12")]
    pub quarantined: Vec<SlotsRecord>,
}

/// A range of an element's slots.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SlotsRecord {
    /// First slot.
    #[prost(uint32, tag = "1")]
    pub base: u32,
    /// Number of slots.
    #[prost(uint32, tag = "2")]
    pub slots: u32,
}

/// One change of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Where ids go on.
    Ids(IdsRecord),
    /// An application is new or has changed.
    PutApplication(ApplicationRecord),
    /// An application is forgotten.
    RemoveApplication(u32),
    /// An endpoint is new or has changed.
    PutEndpoint(EndpointRecord),
    /// An endpoint has left.
    RemoveEndpoint(u32),
    /// An element is new or has changed.
    PutElement(ElementRecord),
    /// An element is forgotten.
    RemoveElement(u32),
    /// A pool is new or has changed.
    PutPool(PoolRecord),
    /// A pool is forgotten.
    RemovePool(u32),
}

/// All records, each kind ascending by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Where ids go on; none in a store that was never written.
    pub ids: Option<IdsRecord>,
    /// Applications by GAID.
    pub applications: Vec<ApplicationRecord>,
    /// Callers by endpoint id.
    pub endpoints: Vec<EndpointRecord>,
    /// Elements by id.
    pub elements: Vec<ElementRecord>,
    /// Pools by GAID.
    pub pools: Vec<PoolRecord>,
}

/// Adds `id` to an ascending list.
pub(super) fn insert(list: &mut Vec<u32>, id: u32) {
    if let Err(at) = list.binary_search(&id) {
        list.insert(at, id);
    }
}

/// Takes `id` out of an ascending list.
pub(super) fn remove(list: &mut Vec<u32>, id: u32) -> bool {
    let found = list.binary_search(&id);
    if let Ok(at) = found {
        list.remove(at);
    }
    found.is_ok()
}
