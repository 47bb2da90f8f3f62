//! Store of the objects: this process's memory, or what implements [`Backend`].

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use crate::objects::{key, value};

/// Objects that go to a store in one batch.
const BATCH: u64 = 10_000;

/// A value, if there is one.
pub type Value = Option<Vec<u8>>;
/// What a backend says of its failure.
pub type Failed = Box<dyn Error + Send + Sync>;

/// What keeps objects.
#[tonic::async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The value under a key.
    ///
    /// # Errors
    /// When the store fails.
    async fn get(&self, key: &[u8]) -> Result<Value, Failed>;

    /// The values under these keys, in their order.
    ///
    /// # Errors
    /// When the store fails.
    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, Failed>;

    /// Puts values under keys.
    ///
    /// # Errors
    /// When the store fails.
    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), Failed>;
}

/// A store, as many tasks use it.
#[derive(Debug, Clone)]
pub struct Store(Arc<dyn Backend>);

/// A store does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It says so, or its connection.
    #[error("the store fails: {0}")]
    Failed(#[from] Failed),
    /// It has not got what it was filled with.
    #[error("of {expected} objects, {missing:?} is not in the store")]
    Lost {
        /// Objects that it was filled with.
        expected: u64,
        /// One of them.
        missing: String,
    },
}

impl Store {
    /// A store on this backend.
    pub fn new(backend: impl Backend) -> Self {
        Self(Arc::new(backend))
    }

    /// An empty one in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::new(Memory::default())
    }

    /// The value under a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get(&self, key: &[u8]) -> Result<Value, StoreError> {
        Ok(self.0.get(key).await?)
    }

    /// The values under these keys, in their order.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get_all(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Value>, StoreError> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        Ok(self.0.get_all(&keys).await?)
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Ok(self.0.put_all(&[(key, value)]).await?)
    }

    /// Puts this many objects, many at a time, and sees whether they are there.
    ///
    /// # Errors
    /// When the store fails, or has thrown some away.
    pub async fn fill(&self, objects: u64) -> Result<(), StoreError> {
        for first in (0..objects).step_by(BATCH as usize) {
            let batch: Vec<_> =
                (first..objects.min(first + BATCH)).map(|number| (key(number), value(number))).collect();
            let batch: Vec<(&[u8], &[u8])> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            self.0.put_all(&batch).await?;
        }
        // A store that is full may drop those that are oldest.
        for number in [0, objects / 2, objects.saturating_sub(1)].into_iter().filter(|number| *number < objects) {
            if self.get(&key(number)).await?.as_deref() != Some(&value(number)[..]) {
                let missing = String::from_utf8_lossy(&key(number)).into_owned();
                return Err(StoreError::Lost { expected: objects, missing });
            }
        }
        Ok(())
    }
}

/// In this process.
#[derive(Debug, Default)]
struct Memory(RwLock<HashMap<Vec<u8>, Vec<u8>>>);

#[tonic::async_trait]
impl Backend for Memory {
    async fn get(&self, key: &[u8]) -> Result<Value, Failed> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, Failed> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(keys.iter().map(|key| objects.get(*key).cloned()).collect())
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), Failed> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        kept.extend(objects.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok(())
    }
}

/// What every store has to do, for tests of stores.
///
/// # Panics
/// When it does something else.
pub async fn check(store: &Store) {
    store.fill(1234).await.expect("filled");
    assert_eq!(store.get(&key(1233)).await.expect("answers"), Some(value(1233).to_vec()));
    assert_eq!(store.get(&key(1234)).await.expect("answers"), None);
    let keys: Vec<_> = [5, 2000, 4].map(key).into();
    let values = store.get_all(&keys).await.expect("answers");
    assert_eq!(values, [Some(value(5).to_vec()), None, Some(value(4).to_vec())]);
    store.put(&key(2000), b"END\r\nget VALUE 1\r\n").await.expect("put");
    assert_eq!(store.get_all(&keys).await.expect("answers")[1].as_deref(), Some(&b"END\r\nget VALUE 1\r\n"[..]));
    // Many at once, each its own.
    let one = |n: u64| {
        let store = store.clone();
        tokio::spawn(async move { store.get(&key(n)).await })
    };
    for (n, got) in (0..100).map(one).enumerate() {
        assert_eq!(got.await.expect("no panic").expect("answers"), Some(value(n as u64).to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_keeps_what_is_put() {
        check(&Store::memory()).await;
    }
}
