//! Changes of an element's tables.

use pathcall_proto::v1::{ElementApplication, EndpointEntry, TokenKey};

/// Change of an element's tables. Changes are made in order, and may be repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Push {
    /// Remove every application that is not listed: entries of a controller that has lost its store.
    Retain(Vec<u32>),
    /// Admit frames of an application. A new epoch begins with empty registers; the same epoch keeps them.
    Install(ElementApplication),
    /// Stop admitting frames of an application; its endpoints are removed, too.
    Remove(u32),
    /// Add these endpoints or replace those with the same id.
    SetEndpoints(Vec<EndpointEntry>),
    /// Install this table of a pool's servers; the known queue lengths of servers that stay are kept.
    InstallPool(ElementPool),
    /// Remove these endpoints.
    RemoveEndpoints(Vec<u32>),
    /// Set the multicast group of an application.
    SetGroup {
        /// Id of the application.
        gaid: u32,
        /// Endpoint ids, ascending.
        endpoints: Vec<u32>,
    },
}

impl Push {
    /// Whether the change only removes entries.
    #[must_use]
    pub const fn removes(&self) -> bool {
        matches!(self, Self::Retain(_) | Self::Remove(_) | Self::RemoveEndpoints(_))
    }
}

/// Pool in an element's tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementPool {
    /// Id of the pool.
    pub gaid: u32,
    /// Version of this table.
    pub version: u32,
    /// Endpoint ids by SID, at least one.
    pub servers: Vec<u32>,
    /// Key of its frames, if they carry tokens.
    pub token_key: Option<TokenKey>,
}

/// Subject of a push, for the handling of its confirmation or refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushSubject {
    /// Removal of applications that the element did not get from this controller.
    UnknownApplications,
    /// Entries of an application or pool.
    Application(u32),
    /// Removal of an application.
    Removed(u32),
    /// Removal of endpoints.
    RemovedEndpoints(Vec<u32>),
}

/// Maximum number of entries in one push: far below gRPC's 4 MiB limit of a message.
pub(super) const ENTRIES_MAX: usize = 4096;
