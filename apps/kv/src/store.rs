//! Where objects are.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd, pipe};

use crate::memcached::Memcached;
use crate::objects::{key, value};

/// Objects that go to a store in one batch.
const BATCH: u64 = 10_000;

/// A store, as many tasks use it.
#[derive(Debug, Clone)]
pub enum Store {
    /// In this process.
    Memory(Arc<RwLock<HashMap<Vec<u8>, Vec<u8>>>>),
    /// A Redis.
    Redis(MultiplexedConnection),
    /// A memcached.
    Memcached(Memcached),
}

/// What kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// In this process.
    Memory,
    /// Debian's redis-server.
    Redis,
    /// Debian's memcached.
    Memcached,
}

/// A store does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Redis says so, or its connection.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// The connection to memcached does.
    #[error("memcached: {0}")]
    Memcached(#[from] std::io::Error),
    /// The store has not got what it was filled with.
    #[error("of {expected} objects, {missing:?} is not in the store")]
    Lost {
        /// Objects that it was filled with.
        expected: u64,
        /// One of them.
        missing: String,
    },
}

impl Store {
    /// An empty one in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// The Redis behind this socket.
    ///
    /// # Errors
    /// When none answers there.
    pub async fn redis(socket: &Path) -> Result<Self, StoreError> {
        let client = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
        Ok(Self::Redis(client.get_multiplexed_async_connection().await?))
    }

    /// The memcached behind this socket.
    ///
    /// # Errors
    /// When none answers there.
    pub async fn memcached(socket: &Path) -> Result<Self, StoreError> {
        Ok(Self::Memcached(Memcached::connect(socket).await?))
    }

    /// The value under a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self {
            Self::Memory(objects) => Ok(objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()),
            Self::Redis(connection) => Ok(cmd("GET").arg(key).query_async(&mut connection.clone()).await?),
            Self::Memcached(memcached) => Ok(memcached.get(&[key]).await?.pop().flatten()),
        }
    }

    /// The values under these keys, in their order.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn get_all(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        match self {
            Self::Memory(objects) => {
                let objects = objects.read().unwrap_or_else(PoisonError::into_inner);
                Ok(keys.iter().map(|key| objects.get(*key).cloned()).collect())
            }
            Self::Redis(connection) => Ok(cmd("MGET").arg(&keys).query_async(&mut connection.clone()).await?),
            Self::Memcached(memcached) => Ok(memcached.get(&keys).await?),
        }
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        match self {
            Self::Memory(objects) => {
                let mut objects = objects.write().unwrap_or_else(PoisonError::into_inner);
                objects.insert(key.to_vec(), value.to_vec());
            }
            Self::Redis(connection) => {
                cmd("SET").arg(key).arg(value).query_async::<()>(&mut connection.clone()).await?;
            }
            Self::Memcached(memcached) => memcached.set(&[(key, value)]).await?,
        }
        Ok(())
    }

    /// Puts this many objects, many at a time, and sees whether they are there.
    ///
    /// # Errors
    /// When the store fails, or has thrown some away.
    pub async fn fill(&self, objects: u64) -> Result<(), StoreError> {
        for first in (0..objects).step_by(BATCH as usize) {
            let batch: Vec<_> =
                (first..objects.min(first + BATCH)).map(|number| (key(number), value(number))).collect();
            self.put_all(&batch).await?;
        }
        // A full memcached drops those that are oldest.
        for number in [0, objects / 2, objects.saturating_sub(1)].into_iter().filter(|number| *number < objects) {
            if self.get(&key(number)).await?.as_deref() != Some(&value(number)[..]) {
                let missing = String::from_utf8_lossy(&key(number)).into_owned();
                return Err(StoreError::Lost { expected: objects, missing });
            }
        }
        Ok(())
    }

    async fn put_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, batch: &[(K, V)]) -> Result<(), StoreError> {
        match self {
            Self::Memory(objects) => {
                let mut objects = objects.write().unwrap_or_else(PoisonError::into_inner);
                objects.extend(batch.iter().map(|(key, value)| (key.as_ref().to_vec(), value.as_ref().to_vec())));
            }
            Self::Redis(connection) => {
                let mut commands = pipe();
                for (key, value) in batch {
                    commands.set(key.as_ref(), value.as_ref()).ignore();
                }
                commands.query_async::<()>(&mut connection.clone()).await?;
            }
            Self::Memcached(memcached) => {
                let batch: Vec<_> = batch.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
                memcached.set(&batch).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::Daemon;
    use crate::objects::number;

    /// What every store does.
    async fn keeps(store: &Store) {
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
        assert_eq!(number(&key(1)), Some(1));
    }

    #[tokio::test]
    async fn memory_keeps_what_is_put() {
        keeps(&Store::memory()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn daemons_keep_what_is_put_and_end_when_dropped() {
        for kind in [StoreKind::Redis, StoreKind::Memcached] {
            let Some(daemon) = Daemon::start_if_there(kind, 16).await.expect("starts") else {
                // Where all stores have to be there, one that is not has failed.
                assert!(std::env::var_os("PATHCALL_STORE_TESTS").is_none(), "{kind:?} is not installed");
                println!("skipped: {kind:?} is not installed");
                continue;
            };
            keeps(&daemon.store().await.expect("connects")).await;
            let socket = daemon.socket();
            drop(daemon);
            assert!(!socket.exists(), "{}", socket.display());
            let gone = match kind {
                StoreKind::Redis => Store::redis(&socket).await,
                _ => Store::memcached(&socket).await,
            };
            assert!(gone.is_err(), "{kind:?}");
        }
    }
}
