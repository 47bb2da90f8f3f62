//! memcached's text protocol, as much of it as a store needs: get many, set many.
//!
//! Clients on crates.io send each key of a request by a system call of its own, or wait for each object that is
//! set; here a request is one write, and what is set is followed by one question that is answered when all is done.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kv::store::{Backend, Failed, Store, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// Bytes of a value that is believed: a store's own limit.
const VALUE_MAX: usize = 1 << 20;
/// Connections that are kept.
const KEPT_MAX: usize = 64;

/// The memcached behind this socket, as a store.
///
/// # Errors
/// When none answers there.
pub async fn store(socket: &Path) -> Result<Store> {
    Ok(Store::new(Memcached::connect(socket).await?))
}

#[tonic::async_trait]
impl Backend for Memcached {
    async fn get(&self, key: &[u8]) -> std::result::Result<Value, Failed> {
        Ok(Self::get(self, &[key]).await?.pop().flatten())
    }

    async fn get_all(&self, keys: &[&[u8]]) -> std::result::Result<Vec<Value>, Failed> {
        Ok(Self::get(self, keys).await?)
    }

    async fn put_all(&self, objects: &[(&[u8], &[u8])]) -> std::result::Result<(), Failed> {
        Ok(self.set(objects).await?)
    }
}

/// A memcached behind a socket. A request takes a connection for itself: as many are open as requests were at once.
#[derive(Debug, Clone)]
pub struct Memcached {
    socket: Arc<PathBuf>,
    kept: Arc<Mutex<Vec<BufReader<UnixStream>>>>,
}

impl Memcached {
    /// The one at this socket.
    ///
    /// # Errors
    /// When nobody listens there.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let memcached = Self { socket: Arc::new(socket.to_owned()), kept: Arc::default() };
        let connection = memcached.take().await?;
        memcached.keep(connection);
        Ok(memcached)
    }

    /// The values under keys, in their order.
    ///
    /// # Errors
    /// When the connection fails, or answers something else.
    pub async fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut connection = self.take().await?;
        let mut request = b"get".to_vec();
        for key in keys {
            request.push(b' ');
            request.extend_from_slice(key);
        }
        request.extend_from_slice(b"\r\n");
        connection.get_mut().write_all(&request).await?;
        let values = read_values(&mut connection, keys).await?;
        // One that has failed is not used again: what is left to read there is another's answer.
        self.keep(connection);
        Ok(values)
    }

    /// Puts values under keys; when it returns, they are there.
    ///
    /// # Errors
    /// When the connection fails, or memcached has refused one.
    pub async fn set(&self, objects: &[(&[u8], &[u8])]) -> Result<()> {
        let mut connection = self.take().await?;
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
        self.keep(connection);
        Ok(())
    }

    async fn take(&self) -> Result<BufReader<UnixStream>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match kept {
            Some(connection) => Ok(connection),
            None => Ok(BufReader::new(UnixStream::connect(&*self.socket).await?)),
        }
    }

    fn keep(&self, connection: BufReader<UnixStream>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(connection);
        }
    }
}

/// Values come in the order of their keys; those that are missing are left out.
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

/// A line without its end.
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
