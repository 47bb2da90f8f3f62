//! Store of the objects: memory of this process, or another [`Backend`].

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::objects::{key, value};

/// Objects of one batch.
const BATCH: u64 = 10_000;

/// Value of a key, if present.
pub type Value = Option<Vec<u8>>;
/// Error of a backend.
pub type BackendError = Box<dyn Error + Send + Sync>;

/// Storage of objects.
#[tonic::async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Value of a key.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    async fn get(&self, key: &[u8]) -> Result<Value, BackendError>;

    /// Values of these keys, in order.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, BackendError>;

    /// Stores values.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), BackendError>;
}

/// Handle of a store, shared by tasks.
#[derive(Debug, Clone)]
pub struct Store(Arc<dyn Backend>);

/// Error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The backend or its connection failed.
    #[error("the store failed: {0}")]
    BackendError(#[from] BackendError),
    /// The store lost objects.
    #[error("object {missing:?} of {expected} is missing in the store")]
    Lost {
        /// Number of objects that it was filled with.
        expected: u64,
        /// Key of a lost object.
        missing: String,
    },
}

impl Store {
    /// Creates a store with this backend.
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }

    /// Creates an empty store in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(Memory::default())
    }

    /// Value of a key.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn get(&self, key: &[u8]) -> Result<Value, StoreError> {
        Ok(self.0.get(key).await?)
    }

    /// Values of these keys, in order.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn get_all(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Value>, StoreError> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        Ok(self.0.get_all(&keys).await?)
    }

    /// Stores a value.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.0.put_all(&[(key, value)]).await?)
    }

    /// Stores this number of objects in batches, and checks that they are present.
    ///
    /// # Errors
    /// Returns an error if the store fails or has dropped objects.
    pub async fn fill(&self, objects: u64) -> Result<(), StoreError> {
        for first in (0..objects).step_by(BATCH as usize) {
            let batch: Vec<_> =
                (first..objects.min(first + BATCH)).map(|number| (key(number), value(number))).collect();
            let batch: Vec<(&[u8], &[u8])> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            self.0.put_all(&batch).await?;
        }
        // A full store may drop its oldest objects.
        for number in [0, objects / 2, objects.saturating_sub(1)].into_iter().filter(|number| *number < objects) {
            if self.get(&key(number)).await?.as_deref() != Some(&value(number)[..]) {
                let missing = String::from_utf8_lossy(&key(number)).into_owned();
                return Err(StoreError::Lost { expected: objects, missing });
            }
        }
        Ok(())
    }
}

/// Backend in this process's memory.
#[derive(Debug, Default)]
struct Memory(RwLock<HashMap<Vec<u8>, Vec<u8>>>);

#[tonic::async_trait]
impl Backend for Memory {
    async fn get(&self, key: &[u8]) -> Result<Value, BackendError> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, BackendError> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(keys.iter().map(|key| objects.get(*key).cloned()).collect())
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), BackendError> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.extend(objects.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok(())
    }
}

/// Checks the behaviour of any store, for tests.
///
/// # Panics
/// Panics if the store behaves differently.
pub async fn check(store: &Store) {
    store.fill(1234).await.expect("filled");
    assert_eq!(store.get(&key(1233)).await.expect("answers"), Some(value(1233).to_vec()));
    assert_eq!(store.get(&key(1234)).await.expect("answers"), None);
    let keys: Vec<_> = [5, 2000, 4].map(key).into();
    let values = store.get_all(&keys).await.expect("answers");
    assert_eq!(values, [Some(value(5).to_vec()), None, Some(value(4).to_vec())]);
    store.put(&key(2000), b"END\r\nget VALUE 1\r\n").await.expect("put");
    assert_eq!(store.get_all(&keys).await.expect("answers")[1].as_deref(), Some(&b"END\r\nget VALUE 1\r\n"[..]));
    // Many concurrent reads, each with its own answer.
    let one = |n: u64| {
        let store = store.clone();
        tokio::spawn(async move { store.get(&key(n)).await })
    };
    for (n, got) in (0..100).map(one).enumerate() {
        assert_eq!(got.await.expect("the task succeeds").expect("answers"), Some(value(n as u64).to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_store_keeps_values() {
        check(&Store::memory()).await;
    }
}
