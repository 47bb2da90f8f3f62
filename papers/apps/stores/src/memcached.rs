//! Client of memcached's text protocol, with the two operations of a store: get many, set many.
//!
//! Clients on crates.io use one system call per key of a request, or wait for each object that is set. Here a request
//! is one write, and a set ends with one query whose answer confirms all objects.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kv::store::{Backend, BackendError, Store, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Maximum length of a received value: memcached's own limit.
const VALUE_MAX: usize = 1 << 20;
/// Maximum number of idle connections.
const IDLE_MAX: usize = 64;

/// Connects to the memcached behind a socket.
///
/// # Errors
/// Returns an error if memcached does not answer.
pub async fn store(socket: &Path) -> Result<Store> {
    Ok(Store::new(Memcached::connect(socket).await?))
}

#[tonic::async_trait]
impl Backend for Memcached {
    async fn get(&self, key: &[u8]) -> std::result::Result<Value, BackendError> {
        Ok(Self::get(self, &[key]).await?.pop().flatten())
    }

    async fn get_all(&self, keys: &[&[u8]]) -> std::result::Result<Vec<Value>, BackendError> {
        Ok(Self::get(self, keys).await?)
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> std::result::Result<(), BackendError> {
        Ok(self.set(objects).await?)
    }
}

/// Client of the memcached behind a socket. Each request in progress has its own connection.
#[derive(Debug, Clone)]
pub struct Memcached {
    socket: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<BufReader<UnixStream>>>>,
}

impl Memcached {
    /// Connects to the memcached behind a socket.
    ///
    /// # Errors
    /// Returns an error if nothing listens at the socket.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let memcached = Self { socket: Arc::new(socket.to_owned()), idle: Arc::default() };
        let connection = memcached.take_connection().await?;
        memcached.return_connection(connection);
        Ok(memcached)
    }

    /// Reads the values of keys, in their order.
    ///
    /// # Errors
    /// Returns an error if the connection fails or the answer is malformed.
    pub async fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut connection = self.take_connection().await?;
        let mut request = b"get".to_vec();
        for key in keys {
            request.push(b' ');
            request.extend_from_slice(key);
        }
        request.extend_from_slice(b"\r\n");
        connection.get_mut().write_all(&request).await?;
        let values = read_values(&mut connection, keys).await?;
        // A failed connection is not reused: its remaining bytes belong to another answer.
        self.return_connection(connection);
        Ok(values)
    }

    /// Stores values; they are visible when the function returns.
    ///
    /// # Errors
    /// Returns an error if the connection fails or memcached rejects a value.
    pub async fn set(&self, objects: &[(&[u8], &[u8])]) -> Result<()> {
        let mut connection = self.take_connection().await?;
        let mut request = Vec::new();
        for (key, value) in objects {
            request.extend_from_slice(b"set ");
            request.extend_from_slice(key);
            request.extend_from_slice(format!(" 0 0 {} noreply\r\n", value.len()).as_bytes());
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"mn\r\n");
        connection.get_mut().write_all(&request).await?;
        let line = read_line(&mut connection).await?;
        if line != "MN" {
            return Err(other("MN", &line));
        }
        self.return_connection(connection);
        Ok(())
    }

    async fn take_connection(&self) -> Result<BufReader<UnixStream>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Ok(BufReader::new(UnixStream::connect(&*self.socket).await?)),
        }
    }

    fn return_connection(&self, connection: BufReader<UnixStream>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

/// Reads values, which arrive in the order of their keys without the missing ones.
async fn read_values(connection: &mut BufReader<UnixStream>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    let mut next = 0;
    loop {
        let line = read_line(connection).await?;
        if line == "END" {
            return Ok(values);
        }
        // VALUE <key> <flags> <bytes>
        let mut words = line.split(' ');
        let (Some("VALUE"), Some(key), Some(_), Some(length)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(other("VALUE or END", &line));
        };
        let length =
            length.parse().ok().filter(|length| *length <= VALUE_MAX).ok_or_else(|| other("a length", &line))?;
        let place = keys[next..].iter().position(|asked| *asked == key.as_bytes());
        let place = next + place.ok_or_else(|| other("a key that was asked for", &line))?;
        let mut value = vec![0; length + 2];
        connection.read_exact(&mut value).await?;
        value.truncate(length);
        values[place] = Some(value);
        next = place + 1;
    }
}

/// Reads a line without its line break.
async fn read_line(connection: &mut BufReader<UnixStream>) -> Result<String> {
    let mut line = String::new();
    if connection.read_line(&mut line).await? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn other(expected: &str, got: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("expected {expected}, got {got:?}"))
}
