//! Redis as a store.

use std::path::Path;

use kv::store::{Backend, BackendError, Store, Value};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd, pipe};

/// Connects to the Redis behind a socket.
///
/// # Errors
/// Returns an error if Redis does not answer.
pub async fn store(socket: &Path) -> Result<Store, RedisError> {
    let client = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
    Ok(Store::new(Redis(client.get_multiplexed_async_connection().await?)))
}

#[derive(Debug)]
struct Redis(MultiplexedConnection);

#[tonic::async_trait]
impl Backend for Redis {
    async fn get(&self, key: &[u8]) -> Result<Value, BackendError> {
        Ok(cmd("GET").arg(key).query_async(&mut self.0.clone()).await?)
    }

    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, BackendError> {
        Ok(cmd("MGET").arg(keys).query_async(&mut self.0.clone()).await?)
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), BackendError> {
        let mut commands = pipe();
        for (key, value) in objects {
            commands.set(*key, *value).ignore();
        }
        Ok(commands.query_async::<()>(&mut self.0.clone()).await?)
    }
}
