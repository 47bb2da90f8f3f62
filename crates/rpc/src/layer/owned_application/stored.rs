//! Application whose state is in a store.

use std::sync::Arc;

use super::super::store::{self, OpenStore, OwnerStoreError};
use super::{OwnedApplication, Phase};

impl OwnedApplication {
    /// Starts the application with the state of its former owners.
    pub(in super::super) fn continue_from(self: &Arc<Self>, open: OpenStore) -> Result<(), OwnerStoreError> {
        let mut phase = self.phase();
        let Phase::Waiting(link, grant) = &mut *phase else { return Ok(()) };
        let Some(link) = link.take() else { return Ok(()) };
        let active = self.start(link, grant.as_ref(), Some(open))?;
        let (handle, notes) = (active.handle.clone(), active.handle.notes());
        let id = store::state_id(&notes).unwrap_or_else(|| {
            let id = rand::random_range(1..=u32::MAX);
            handle.keep_note(&store::id_note(id));
            id
        });
        let _ = self.state_id.set(id);
        self.key_numbers.load(store::long_keys(&notes), move |key| handle.keep_note(&store::key_note(key)));
        let (failure, this) = (active.handle.store_failure(), Arc::downgrade(self));
        tokio::spawn(async move {
            let failure = failure.await;
            let Some(owned) = this.upgrade() else { return };
            tracing::error!(application = owned.application.name, "this server is not the owner any more: {failure}");
            owned.ended.send_replace(Some(failure.to_string().into()));
        });
        *phase = Phase::Active(active);
        Ok(())
    }

    /// Whether the state is in a store.
    pub(in super::super) fn is_stored(&self) -> bool {
        self.state_id.get().is_some()
    }

    /// Id of the state: other owners of the same state have the same id.
    pub(in super::super) fn state_id(&self) -> u32 {
        self.state_id.get().copied().unwrap_or(self.incarnation)
    }
}
