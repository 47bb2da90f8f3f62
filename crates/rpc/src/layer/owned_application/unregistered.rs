//! Count of the members that the controller does not know.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::OwnedApplication;

/// Count of a member that could not be registered.
#[derive(Debug)]
pub(in crate::layer) struct UnregisteredMember(Arc<OwnedApplication>);

impl UnregisteredMember {
    /// Counts a member, until the value is dropped.
    pub(super) fn of(owned: &Arc<OwnedApplication>) -> Self {
        owned.unregistered_members.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(owned))
    }
}

impl Drop for UnregisteredMember {
    fn drop(&mut self) {
        self.0.unregistered_members.fetch_sub(1, Ordering::Relaxed);
    }
}
