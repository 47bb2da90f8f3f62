//! Redis as a store.

use std::path::Path;

use kv::store::{Backend, Failed, Store, Value};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd, pipe};

/// The Redis behind this socket.
///
/// # Errors
/// When none answers there.
pub async fn store(socket: &Path) -> Result<Store, RedisError> {
    let client = redis::Client::open(format!("redis+unix://{}", socket.display()))?;
    Ok(Store::new(Redis(client.get_multiplexed_async_connection().await?)))
}

#[derive(Debug)]
struct Redis(MultiplexedConnection);

#[tonic::async_trait]
impl Backend for Redis {
    async fn get(&self, key: &[u8]) -> Result<Value, Failed> {
        Ok(cmd("GET").arg(key).query_async(&mut self.0.clone()).await?)
    }

    async fn get_all(&self, keys: &[&[u8]]) -> Result<Vec<Value>, Failed> {
        Ok(cmd("MGET").arg(keys).query_async(&mut self.0.clone()).await?)
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> Result<(), Failed> {
        let mut commands = pipe();
        for (key, value) in objects {
            commands.set(*key, *value).ignore();
        }
        Ok(commands.query_async::<()>(&mut self.0.clone()).await?)
    }
}
