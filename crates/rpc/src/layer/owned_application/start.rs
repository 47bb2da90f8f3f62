//! Start of an application: with its first caller, or with the state of a store.

use pathcall_driver::link::Link;
use pathcall_driver::server::ServerHandle;
use pathcall_endpoint::flow::FlowTiming;
use pathcall_endpoint::map::server::{EvictionPolicy, ServerConfig};
use pathcall_proto::IDS_END;
use pathcall_proto::v1::ApplicationGrant;
use pathcall_wire::TokenKey;

use super::super::store::{OpenStore, OwnerStoreError};
use super::standalone::DelayedHandle;
use super::{ActiveApplication, ElementMemory, OwnedApplication, agreed_width, watch_element};

impl OwnedApplication {
    /// Starts the owner. Only a store fails.
    pub(super) fn start(
        &self,
        link: Link,
        grant: Option<&ApplicationGrant>,
        open: Option<OpenStore>,
    ) -> Result<ActiveApplication, OwnerStoreError> {
        let key = grant.and_then(key_of).or(self.own_key);
        let width = agreed_width(&self.application, grant);
        let mut memory = grant.and_then(|grant| self.usable_memory(grant, key, width));
        let registers = memory.as_ref().and_then(ElementMemory::registers);
        if grant.is_some_and(|grant| grant.memory.is_some()) && !self.choice.uses_element() {
            // Another application can use the memory.
            self.ask_anew.notify_one();
        }
        if grant.is_some_and(|grant| grant.memory.is_none()) && self.choice.uses_element() {
            let application = self.application.name;
            tracing::warn!(application, "working in software: no element has memory left (`pathcall status` shows it)");
            self.ask_if_recalled();
        }
        let standalone = || (rand::random_range(1..IDS_END), self.standalone_epoch.number, self.own_id());
        let (gaid, epoch, endpoint) = grant.map_or_else(standalone, |grant| (grant.gaid, grant.epoch, grant.endpoint));
        let opens = (grant.is_none() && self.application.takes_locks).then_some(self.standalone_epoch.ends_at);
        // All fields are written, so that the compiler names a forgotten one.
        let config = ServerConfig {
            gaid,
            epoch,
            endpoint,
            incarnation: self.incarnation,
            grant: registers,
            rows_max: self.choice.rows_max(),
            threshold: self.application.threshold,
            handled: self.application.handled,
            clear: self.application.clear,
            mapping: self.application.mapping,
            acked: self.application.acked,
            locks: self.application.locks,
            votes: self.application.votes,
            eviction: Some(EvictionPolicy::default()),
            key_memory: self.key_memory,
            width,
            lease: self.lease,
            timing: FlowTiming::default(),
        };
        let element = memory.as_ref().map(|memory| memory.element);
        let driver = match open {
            None => ServerHandle::spawn(config, key, link, element),
            Some(OpenStore { store, batches }) => {
                ServerHandle::spawn_stored(config, key, link, element, store, &batches)?
            }
        };
        let epoch = driver.epoch();
        if epoch != config.epoch {
            memory = None;
        }
        let handle = DelayedHandle::new(driver, opens);
        tokio::spawn(watch_element(self.this.clone(), handle.epoch_invalidations()));
        Ok(ActiveApplication { handle, gaid, epoch, endpoint, key, memory, width, terms: 0 })
    }

    /// The granted memory, if it is useful, if its rows have `width` lanes, and if its element has the key of the
    /// application's frames: an element with another key, or none, would drop them all.
    pub(super) fn usable_memory(
        &self,
        grant: &ApplicationGrant,
        key: Option<TokenKey>,
        width: u16,
    ) -> Option<ElementMemory> {
        let memory = ElementMemory::new(grant).filter(|_| self.choice.uses_element())?;
        if memory.grant.width < width.into() {
            // The controller granted it for an application without callers; it will take it back.
            self.ask_anew.notify_one();
            return None;
        }
        if key_of(grant) != key {
            let application = self.application.name;
            tracing::warn!(application, "the controller grants an element without the key that signs map frames");
            return None;
        }
        Some(memory)
    }
}

/// Key of map frames in a grant.
pub(super) fn key_of(grant: &ApplicationGrant) -> Option<TokenKey> {
    grant.token_key.map(|key| TokenKey::new(key.into()))
}
