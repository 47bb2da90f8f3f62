//! Records of the store, and changes of them.
//!
//! The records contain everything that was ever sent to a party. Other state (streams, pushes in progress) is restored
//! when the peers connect. The records are protobuf messages, so that a later version may add fields.

use pathcall_proto::v1::TokenKey;

/// First and next ids. None is ever assigned twice.
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
    /// Epoch with which a new application starts: random, so that a controller that has lost its store does not repeat
    /// epochs that elements and callers still have.
    #[prost(uint32, tag = "4")]
    pub first_epoch: u32,
    /// First id of each kind: random, too.
    #[prost(uint32, tag = "5")]
    pub first: u32,
}

/// Application and its owner. The record stays when the owner dies: the name keeps its GAID.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ApplicationRecord {
    /// Global application id.
    #[prost(uint32, tag = "1")]
    pub gaid: u32,
    /// `AppName` of the filters.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Epoch; grows whenever the registers can no longer be trusted.
    #[prost(uint32, tag = "3")]
    pub epoch: u32,
    /// Digest of the filters.
    #[prost(fixed64, tag = "4")]
    pub filter_digest: u64,
    /// Lanes of one register row.
    #[prost(uint32, tag = "5")]
    pub width: u32,
    /// Requested register rows.
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
    /// Reserved part of an element's memory.
    #[prost(message, optional, tag = "11")]
    pub memory: Option<MemoryRecord>,
    /// Whether the owner has a lease.
    #[prost(bool, tag = "12")]
    pub owned: bool,
    /// Key of its frames, if they carry tokens: a new one for each owner.
    #[prost(message, optional, tag = "13")]
    pub token_key: Option<TokenKey>,
}

impl ApplicationRecord {
    /// Address of the owner for error messages: not every server has a gRPC address.
    pub(super) fn owner(&self) -> String {
        match &self.service_address[..] {
            "" => format!("a server at {} (UDP)", self.data_address),
            address => address.to_owned(),
        }
    }
}

/// Reserved part of an element's memory: `rows` register rows and `rows * width` lanes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MemoryRecord {
    /// Id of the element.
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
    /// Lanes of one row.
    #[prost(uint32, tag = "5")]
    pub width: u32,
}

/// Caller of an application or pool.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CallerRecord {
    /// Endpoint id of the caller.
    #[prost(uint32, tag = "1")]
    pub endpoint: u32,
    /// Id of the application or pool.
    #[prost(uint32, tag = "2")]
    pub gaid: u32,
    /// Incarnation of the caller.
    #[prost(uint32, tag = "3")]
    pub incarnation: u32,
    /// UDP address of the caller, ip:port.
    #[prost(string, tag = "4")]
    pub data_address: String,
    /// First leased slot of the repeat filter of the application's element.
    #[prost(uint32, tag = "5")]
    pub slot_base: u32,
    /// Number of leased slots; 0 if the caller does not use the element, or belongs to a pool.
    #[prost(uint32, tag = "6")]
    pub slots: u32,
    /// For a pool's caller: endpoint of the responsible server; 0 for none.
    #[prost(uint32, tag = "7")]
    pub server: u32,
    /// For a pool's caller: its rack.
    #[prost(string, tag = "8")]
    pub rack: String,
}

/// Pool, as long as it has servers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PoolRecord {
    /// Global application id, which no application has.
    #[prost(uint32, tag = "1")]
    pub gaid: u32,
    /// Name by which servers join.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Version; grows whenever the servers in the table change.
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// Key of its frames, if they carry tokens.
    #[prost(message, optional, tag = "4")]
    pub token_key: Option<TokenKey>,
    /// Servers in the table by SID, and servers whose lease is about to expire.
    #[prost(message, repeated, tag = "5")]
    pub servers: Vec<PoolServerRecord>,
    /// Elements that have the table, ascending, at most one of each rack. (Earlier versions stored at most one.)
    #[prost(uint32, repeated, tag = "6")]
    pub elements: Vec<u32>,
    /// Those of them that have not confirmed their first table, ascending.
    #[prost(uint32, repeated, tag = "7")]
    pub joining: Vec<u32>,
}

/// Server of a pool.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PoolServerRecord {
    /// Endpoint id of the server.
    #[prost(uint32, tag = "1")]
    pub endpoint: u32,
    /// Incarnation of the server.
    #[prost(uint32, tag = "2")]
    pub incarnation: u32,
    /// UDP address of the server, ip:port.
    #[prost(string, tag = "3")]
    pub data_address: String,
    /// gRPC address of the server.
    #[prost(string, tag = "4")]
    pub service_address: String,
    /// Whether the server is in the table.
    #[prost(bool, tag = "5")]
    pub serving: bool,
    /// Rack of the server.
    #[prost(string, tag = "6")]
    pub rack: String,
}

/// Element: one start of it, at one address.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ElementRecord {
    /// Id of the element.
    #[prost(uint32, tag = "1")]
    pub element: u32,
    /// Endpoint id of the element.
    #[prost(uint32, tag = "2")]
    pub endpoint: u32,
    /// Id of this start of the element.
    #[prost(fixed64, tag = "3")]
    pub boot_id: u64,
    /// UDP address, ip:port.
    #[prost(string, tag = "4")]
    pub data_address: String,
    /// gRPC address of its control service, `http://ip:port`.
    #[prost(string, tag = "5")]
    pub control_address: String,
    /// Number of register rows.
    #[prost(uint32, tag = "6")]
    pub rows: u32,
    /// Number of lanes.
    #[prost(uint32, tag = "7")]
    pub lanes: u32,
    /// Number of slots.
    #[prost(uint32, tag = "8")]
    pub slots: u32,
    /// Whether the element has a lease.
    #[prost(bool, tag = "9")]
    pub alive: bool,
    /// Applications whose last removal this start of the element has not confirmed, ascending. The element may have an
    /// older entry of them, so they are removed first.
    #[prost(uint32, repeated, tag = "10")]
    pub stale_applications: Vec<u32>,
    /// The same for endpoints.
    #[prost(uint32, repeated, tag = "11")]
    pub stale_endpoints: Vec<u32>,
    /// Quarantined slots of callers that have left, in order of leaving.
    #[prost(message, repeated, tag = "12")]
    pub quarantined: Vec<SlotRangeRecord>,
    /// Rack of the element.
    #[prost(string, tag = "13")]
    pub rack: String,
    /// Whether the element holds hedges.
    #[prost(bool, tag = "14")]
    pub holds_hedges: bool,
    /// Lanes of a frame that the element processes; 0: no limit.
    #[prost(uint32, tag = "15")]
    pub frame_lanes: u32,
    /// Whether the element serves no applications.
    #[prost(bool, tag = "16")]
    pub without_map: bool,
    /// Whether the element serves no pools.
    #[prost(bool, tag = "17")]
    pub without_pools: bool,
}

/// Range of an element's slots.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SlotRangeRecord {
    /// First slot.
    #[prost(uint32, tag = "1")]
    pub base: u32,
    /// Number of slots.
    #[prost(uint32, tag = "2")]
    pub slots: u32,
}

/// Change of the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// The next ids have changed.
    Ids(IdsRecord),
    /// An application is new or has changed.
    PutApplication(ApplicationRecord),
    /// An application has been removed.
    RemoveApplication(u32),
    /// An endpoint is new or has changed.
    PutEndpoint(CallerRecord),
    /// An endpoint has left.
    RemoveEndpoint(u32),
    /// An element is new or has changed.
    PutElement(ElementRecord),
    /// An element has been removed.
    RemoveElement(u32),
    /// A pool is new or has changed.
    PutPool(PoolRecord),
    /// A pool has been removed.
    RemovePool(u32),
}

/// All records, each kind ascending by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Next ids; `None` in a new store.
    pub ids: Option<IdsRecord>,
    /// Applications by GAID.
    pub applications: Vec<ApplicationRecord>,
    /// Callers by endpoint id.
    pub endpoints: Vec<CallerRecord>,
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

/// Removes `id` from an ascending list.
pub(super) fn remove(list: &mut Vec<u32>, id: u32) -> bool {
    let found = list.binary_search(&id);
    if let Ok(at) = found {
        list.remove(at);
    }
    found.is_ok()
}
