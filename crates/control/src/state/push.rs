//! Changes of an element's tables.

use pathcall_proto::v1::{ElementApplication, EndpointEntry, TokenKey};

/// One change of an element's tables. Changes are made in order, and may be repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Push {
    /// Remove every application that is not listed: what a controller that lost its store left.
    Retain(Vec<u32>),
    /// Admit frames of an application. Another epoch than before begins with empty registers; the
    /// same one keeps them.
    Install(ElementApplication),
    /// Admit no more frames of an application; its endpoints go with it.
    Remove(u32),
    /// Add these endpoints or replace those of the same id.
    SetEndpoints(Vec<EndpointEntry>),
    /// Have this table of a pool's servers; what is known of the queues of those that stay is kept.
    InstallPool(ElementPool),
    /// Forget these endpoints.
    RemoveEndpoints(Vec<u32>),
    /// Multicasts of the application reach these callers and no others.
    SetGroup {
        /// The application.
        gaid: u32,
        /// Endpoint ids, ascending.
        endpoints: Vec<u32>,
    },
}

impl Push {
    /// Whether it only removes entries.
    #[must_use]
    pub const fn removes(&self) -> bool {
        matches!(self, Self::Retain(_) | Self::Remove(_) | Self::RemoveEndpoints(_))
    }
}

/// A pool as an element has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementPool {
    /// The pool.
    pub gaid: u32,
    /// Of this table.
    pub version: u32,
    /// Endpoint ids by SID, at least one.
    pub servers: Vec<u32>,
    /// What signs its frames, if they carry tokens.
    pub token_key: Option<TokenKey>,
}

/// What is known when a push is confirmed or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// Applications that the element did not get from this controller are gone.
    Strangers,
    /// The application's, or the pool's, entries are as pushed.
    Application(u32),
    /// The application is gone.
    Removed(u32),
    /// The endpoints are gone.
    RemovedEndpoints(Vec<u32>),
}

/// Entries in one push: far below gRPC's 4 MiB limit of a message.
pub(super) const ENTRIES_MAX: usize = 4096;
