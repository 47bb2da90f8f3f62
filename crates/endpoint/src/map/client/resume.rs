//! Change of the owner: a caller waits for the owner that takes over, and continues with it.
//!
//! ```text
//! connection lost ─► suspend ─► no frames, no time-outs ─► resume: the new owner, and the end of the former's epoch
//! ```
//!
//! The caller keeps its calls and its sequence numbers. Frames past the element are sent again as they are, since the new
//! owner has the repeat filters of the former one.

use pathcall_wire::{Instant, TokenKey};

use super::super::EpochChange;
use super::{ClientConfig, MapClient, ServerReachability};
use crate::token::FrameAuth;

/// Owner that has taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewOwner {
    /// Id of the application at this owner.
    pub gaid: u32,
    /// Endpoint of the owner.
    pub server: u32,
    /// Incarnation of the owner.
    pub incarnation: u32,
    /// Key of the application's frames, if they carry tokens.
    pub key: Option<TokenKey>,
}

impl MapClient {
    /// Stops sending until [`MapClient::resume`]: there is no owner at present.
    pub fn suspend(&mut self) {
        self.suspended = true;
    }

    /// Epoch that this caller knows.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.config.epoch
    }

    /// Continues with another owner. `change` tells what the former owners had of this caller.
    pub fn resume(&mut self, now: Instant, owner: &NewOwner, change: &EpochChange) {
        let NewOwner { gaid, server, incarnation, key } = *owner;
        self.config = ClientConfig { gaid, server, server_incarnation: incarnation, ..self.config };
        self.guard = FrameAuth::new(key);
        (self.suspended, self.reach) = (false, ServerReachability::Unknown);
        self.renew(now, change);
        self.greet();
    }
}
