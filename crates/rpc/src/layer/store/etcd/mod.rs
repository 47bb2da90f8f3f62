//! Store of an owner's state in etcd.
//!
//! ```text
//! PREFIX/<application>/owner                  exists while there is an owner: it is removed with the owner's lease
//!                      head                   snapshot and log of the state, as OWNER-NUMBER
//!                      data/<head>/<entry>    entries: the snapshot, then groups of batches
//! ```
//!
//! Each write is a transaction that only succeeds while `owner` is the key that this owner has created. So a former owner
//! cannot write, and therefore does not acknowledge. A value has [`PART`] bytes at most; longer groups have several entries, of
//! which only the last one completes the group.

mod client;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pathcall_driver::store::{BatchStore, BatchStoreError, Claimed};
use tokio::runtime::{Builder, Runtime};
use tonic::Status;

use client::{EtcdClient, EtcdEntry, EtcdOperation};

/// Lease of an owner, seconds: a standby takes over this long after the owner's last sign of life.
const LEASE_S: i64 = 5;
/// Time limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Maximum size of a value: etcd takes requests of 1.5 MiB by default.
const PART: usize = 1 << 20;
/// Minimum size of a log at which a snapshot is written, bytes.
const SNAPSHOT_AT: usize = 4 << 20;
/// First byte of an entry: whether its group goes on in the next entry.
const CONTINUED: u8 = 0;
const LAST: u8 = 1;

/// Standby of one application: waits until it may become the owner.
pub(super) struct EtcdStandby {
    connection: Option<Connection>,
}

/// Keys of an application in etcd, as its owner.
pub(super) struct EtcdStore {
    connection: Connection,
    lease: i64,
    /// Revision at which this owner has created its key.
    revision: i64,
    /// Number of the present head of this owner, and of its next entry.
    head: u64,
    next: u64,
    snapshot_bytes: usize,
    log_bytes: usize,
}

/// Connection with a runtime of its own, so that it works in threads of any runtime.
struct Connection {
    client: EtcdClient,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// Prefix of the application's keys, which ends with a slash.
    prefix: String,
    place: PathBuf,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The store may be dropped by a task of another runtime, which must not block.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Connection {
    fn new(endpoints: &[String], prefix: &str, application: &str) -> Result<Self, BatchStoreError> {
        let prefix = format!("{}/{application}/", prefix.trim_end_matches('/'));
        let place = PathBuf::from(format!("etcd at {} under {prefix}", endpoints.join(", ")));
        let failed = |source| BatchStoreError::Failed { what: "claim", place: place.clone(), source };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let client = {
            let _context = runtime.enter();
            EtcdClient::new(endpoints, ANSWER_LIMIT).map_err(failed)?
        };
        Ok(Self { client, runtime: Some(runtime), prefix, place })
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }

    /// Waits for an answer. Blocks; must not be called by a task.
    fn wait<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, BatchStoreError> {
        let Some(runtime) = &self.runtime else { unreachable!("the runtime is there until the connection is dropped") };
        runtime.block_on(answer).map_err(|status| self.failed(what, status))
    }

    fn failed(&self, what: &'static str, status: Status) -> BatchStoreError {
        let source = io::Error::other(format!("{}: {}", status.code(), status.message()));
        BatchStoreError::Failed { what, place: self.place.clone(), source }
    }
}

impl EtcdStandby {
    pub(super) fn new(endpoints: &[String], prefix: &str, application: &str) -> Result<Self, BatchStoreError> {
        Ok(Self { connection: Some(Connection::new(endpoints, prefix, application)?) })
    }

    /// Looks once; returns the store and its batches if this process is the owner now. Blocks.
    pub(super) fn look(&mut self) -> Result<Option<Claimed<EtcdStore>>, BatchStoreError> {
        let Some(connection) = &self.connection else { return Ok(None) };
        let (client, owner) = (&connection.client, connection.key("owner"));
        let claimed = connection.wait("claim", async {
            if !client.range(&owner, &after(&owner)).await?.is_empty() {
                return Ok(None);
            }
            let lease = client.grant_lease(LEASE_S).await?;
            let claim = EtcdOperation::put(&owner, std::process::id().to_string().into_bytes(), lease);
            let revision = client.transact((&owner, 0), vec![claim]).await?;
            Ok(revision.map(|revision| (lease, revision)))
        })?;
        let Some((lease, revision)) = claimed else { return Ok(None) };
        let batches = recover(connection)?;
        let Some(connection) = self.connection.take() else { return Ok(None) };
        let store = EtcdStore { connection, lease, revision, head: 0, next: 0, snapshot_bytes: 0, log_bytes: 0 };
        Ok(Some((store, batches)))
    }
}

/// Batches under the present head.
fn recover(connection: &Connection) -> Result<Vec<Vec<u8>>, BatchStoreError> {
    let (client, key) = (&connection.client, connection.key("head"));
    let entries = connection.wait("read", async {
        let Some(head) = client.range(&key, &after(&key)).await?.pop() else { return Ok(Vec::new()) };
        let data = connection.key(&format!("data/{}/", String::from_utf8_lossy(&head.value)));
        client.range(&data, &after(&data)).await
    })?;
    decode(&entries).ok_or_else(|| BatchStoreError::Damaged { place: connection.place.clone(), at: 0 })
}

/// Batches of these entries, without an unfinished last group.
fn decode(entries: &[EtcdEntry]) -> Option<Vec<Vec<u8>>> {
    let (mut batches, mut group) = (Vec::new(), Vec::new());
    for entry in entries {
        let (mark, part) = entry.value.split_first()?;
        group.extend_from_slice(part);
        if *mark == LAST {
            let mut rest = &std::mem::take(&mut group)[..];
            while let Some((len, after)) = rest.split_first_chunk() {
                let (batch, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
                batches.push(batch.to_vec());
                rest = after;
            }
        }
    }
    Some(batches)
}

/// Values of the entries for a group of batches.
fn encode(batches: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut group = Vec::new();
    for batch in batches {
        group.extend_from_slice(&(batch.len() as u32).to_be_bytes());
        group.extend_from_slice(batch);
    }
    let mut parts: Vec<Vec<u8>> = group.chunks(PART).map(|part| [&[CONTINUED], part].concat()).collect();
    if let Some(last) = parts.last_mut() {
        last[0] = LAST;
    }
    parts
}

impl EtcdStore {
    /// Writes entries of the present head, in order.
    fn write(&mut self, parts: Vec<Vec<u8>>) -> Result<(), BatchStoreError> {
        for part in parts {
            let key = self.connection.key(&format!("data/{}-{}/{:016x}", self.revision, self.head, self.next));
            self.transact(vec![EtcdOperation::put(&key, part, 0)])?;
            self.next += 1;
        }
        Ok(())
    }

    /// Executes the operations, unless there is another owner.
    fn transact(&self, operations: Vec<EtcdOperation>) -> Result<(), BatchStoreError> {
        let Self { connection, revision, .. } = self;
        let owner = connection.key("owner");
        let done = connection.wait("write", connection.client.transact((&owner, *revision), operations))?;
        done.map(drop).ok_or_else(|| BatchStoreError::TakenOver { place: connection.place.clone() })
    }
}

impl BatchStore for EtcdStore {
    fn append(&mut self, batches: &[Vec<u8>]) -> Result<(), BatchStoreError> {
        if self.head == 0 {
            self.replace(&[])?;
        }
        let parts = encode(&batches.iter().map(|batch| &batch[..]).collect::<Vec<_>>());
        self.log_bytes += parts.iter().map(Vec::len).sum::<usize>();
        self.write(parts)
    }

    fn replace(&mut self, snapshot: &[u8]) -> Result<(), BatchStoreError> {
        (self.head, self.next) = (self.head + 1, 0);
        let parts = encode(&[snapshot]);
        (self.snapshot_bytes, self.log_bytes) = (parts.iter().map(Vec::len).sum(), 0);
        self.write(parts)?;
        let (head, data) = (format!("{}-{}", self.revision, self.head), self.connection.key("data/"));
        let own = self.connection.key(&format!("data/{head}/"));
        // What is before and after the new head in the order of keys is not needed any more.
        self.transact(vec![
            EtcdOperation::put(&self.connection.key("head"), head.into_bytes(), 0),
            EtcdOperation::delete(&data, &own),
            EtcdOperation::delete(&after(&own), &after(&data)),
        ])
    }

    fn wants_snapshot(&self) -> bool {
        self.log_bytes > SNAPSHOT_AT.max(2 * self.snapshot_bytes)
    }

    fn beat(&mut self) -> Result<(), BatchStoreError> {
        let renewed = self.connection.wait("claim", self.connection.client.renew_lease(self.lease))?;
        if renewed { Ok(()) } else { Err(BatchStoreError::TakenOver { place: self.connection.place.clone() }) }
    }
}

/// First key after all that begin with this prefix.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // A prefix ends with a letter or a slash.
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(parts: Vec<Vec<u8>>) -> Vec<EtcdEntry> {
        parts.into_iter().map(|value| EtcdEntry { value, ..EtcdEntry::default() }).collect()
    }

    #[test]
    fn groups_round_trip_in_parts() {
        let (long, short) = (vec![7; 2 * PART + 5], b"short".to_vec());
        let group = encode(&[&long, &[], &short]);
        assert_eq!(group.len(), 3);
        assert!(group.iter().all(|part| part.len() <= PART + 1));
        let second = encode(&[b"b"]);
        let all = entries([group.clone(), second.clone()].concat());
        assert_eq!(decode(&all), Some(vec![long, Vec::new(), short, b"b".to_vec()]));
        let unfinished = entries([second, group[..2].to_vec()].concat());
        assert_eq!(decode(&unfinished), Some(vec![b"b".to_vec()]), "an unfinished group is cut");
    }
}
