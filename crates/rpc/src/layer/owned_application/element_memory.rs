//! Memory of an element as granted to an application, and the width of its rows.

use std::net::SocketAddr;

use pathcall_endpoint::map::RegisterGrant;
use pathcall_proto::v1::{ApplicationGrant, MemoryGrant};

use crate::application::Application;

/// Grant of an element's memory.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::layer) struct ElementMemory {
    pub(in crate::layer) element: SocketAddr,
    pub(super) grant: MemoryGrant,
}

impl ElementMemory {
    /// Usable part of the grant.
    pub(super) fn new(grant: &ApplicationGrant) -> Option<Self> {
        let grant = grant.memory.clone()?;
        match grant.data_address.parse() {
            Ok(element) if grant.rows > 0 => Some(Self { element, grant }),
            Ok(_) => None,
            Err(_) => {
                tracing::warn!(address = grant.data_address, "the controller grants an element without an address");
                None
            }
        }
    }

    pub(super) fn registers(&self) -> Option<RegisterGrant> {
        Some(RegisterGrant { rows: self.grant.rows, width: u16::try_from(self.grant.width).ok()? })
    }
}

/// Lanes of a row for all callers: those of the first grant, if a sum's are fewer. The width counts also if callers on
/// this host use no element yet.
pub(super) fn agreed_width(application: &Application, grant: Option<&ApplicationGrant>) -> u16 {
    let own = application.width();
    let granted = grant.and_then(|grant| grant.memory.as_ref()).and_then(|memory| u16::try_from(memory.width).ok());
    let is_narrow = |granted: &u16| application.threshold > 0 && (1..own).contains(granted);
    granted.filter(is_narrow).unwrap_or(own)
}
