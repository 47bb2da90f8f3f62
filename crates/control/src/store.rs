//! Store: the controller's records in an embedded database, so that a restart loses none.
//!
//! Changes are committed together or not at all, and are on disk when [`Store::commit`] returns. Each kind of record
//! has a table by id; a record is the protobuf message of [`crate::state`].

use std::path::{Path, PathBuf};

use pathcall_proto::v1::TokenKey;
use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::state::{RecordChange, Snapshot};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const APPLICATIONS: TableDefinition<u32, &[u8]> = TableDefinition::new("applications");
const ENDPOINTS: TableDefinition<u32, &[u8]> = TableDefinition::new("endpoints");
const ELEMENTS: TableDefinition<u32, &[u8]> = TableDefinition::new("elements");
const POOLS: TableDefinition<u32, &[u8]> = TableDefinition::new("pools");

/// Keys of the table `meta`.
const IDS: &str = "ids";
const FORMAT: &str = "format";
const NODES_KEY: &str = "nodes-key";
/// Format that this version writes and reads.
const FORMAT_NOW: u8 = 1;
/// Cache of database pages, bytes; all records of a large controller fit.
const CACHE_BYTES: usize = 16 << 20;

/// Location of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StoreLocation {
    /// In memory: the records are lost with the controller.
    #[default]
    Memory,
    /// In this file, which is created if it does not exist.
    File(PathBuf),
}

/// Error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the file open.
    #[error("store {} is in use: another controller may be running; choose another with --store", path.display())]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be opened or created.
    #[error("cannot open store {}: {source}", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error of the database.
        source: Box<DatabaseError>,
    },
    /// Another version of the controller wrote the file.
    #[error("the store has format {got}, expected {FORMAT_NOW}: another version of the controller wrote it")]
    Format {
        /// Format of the file.
        got: u8,
    },
    /// A record cannot be decoded.
    #[error("the store's record {id} in {table} is damaged: {source}")]
    Record {
        /// Name of the table.
        table: &'static str,
        /// Key of the record.
        id: String,
        /// Error of the decoder.
        source: prost::DecodeError,
    },
    /// Reading or writing failed.
    #[error("the store failed: {0}")]
    Failed(#[source] Box<redb::Error>),
}

/// Open store; only one process at a time can have it open.
#[derive(Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the store; creates it if it does not exist.
    ///
    /// # Errors
    /// The file cannot be used, or is not a store of this version.
    pub fn open(place: &StoreLocation) -> Result<Self, StoreError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let (database, path): (_, &Path) = match place {
            StoreLocation::Memory => (builder.create_with_backend(InMemoryBackend::new()), Path::new("in memory")),
            StoreLocation::File(path) => (builder.create(path), path),
        };
        let database = database.map_err(|source| match source {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.into() },
            source => StoreError::Open { path: path.into(), source: Box::new(source) },
        })?;
        let store = Self { database };
        store.claim()?;
        Ok(store)
    }

    /// Creates the tables of a new store; refuses a store of another format.
    fn claim(&self) -> Result<(), StoreError> {
        let write = self.database.begin_write().map_err(failed)?;
        {
            let mut meta = write.open_table(META).map_err(failed)?;
            let format = meta.get(FORMAT).map_err(failed)?.map(|value| value.value().first().copied().unwrap_or(0));
            match format {
                Some(FORMAT_NOW) => {}
                Some(got) => return Err(StoreError::Format { got }),
                None => drop(meta.insert(FORMAT, [FORMAT_NOW].as_slice()).map_err(failed)?),
            }
            for table in [APPLICATIONS, ENDPOINTS, ELEMENTS, POOLS] {
                write.open_table(table).map_err(failed)?;
            }
        }
        write.commit().map_err(failed)
    }

    /// All records.
    ///
    /// # Errors
    /// Reading fails or a record is damaged.
    pub fn load(&self) -> Result<Snapshot, StoreError> {
        let read = self.database.begin_read().map_err(failed)?;
        let meta = read.open_table(META).map_err(failed)?;
        let ids = meta.get(IDS).map_err(failed)?;
        Ok(Snapshot {
            ids: ids.map(|bytes| decode("meta", IDS, bytes.value())).transpose()?,
            applications: records("applications", &read.open_table(APPLICATIONS).map_err(failed)?)?,
            endpoints: records("endpoints", &read.open_table(ENDPOINTS).map_err(failed)?)?,
            elements: records("elements", &read.open_table(ELEMENTS).map_err(failed)?)?,
            pools: records("pools", &read.open_table(POOLS).map_err(failed)?)?,
        })
    }

    /// Key of the node directory: the stored one, or else the one that `draw` returns, if any. Blocks.
    ///
    /// # Errors
    /// Reading or writing fails, or the record is damaged.
    pub fn nodes_key(&self, draw: impl FnOnce() -> Option<TokenKey>) -> Result<Option<TokenKey>, StoreError> {
        let write = self.database.begin_write().map_err(failed)?;
        let key = {
            let mut meta = write.open_table(META).map_err(failed)?;
            let kept = meta.get(NODES_KEY).map_err(failed)?;
            let kept = kept.map(|bytes| decode("meta", NODES_KEY, bytes.value())).transpose()?;
            match kept {
                Some(kept) => Some(kept),
                None => {
                    let drawn = draw();
                    if let Some(drawn) = &drawn {
                        meta.insert(NODES_KEY, drawn.encode_to_vec().as_slice()).map_err(failed)?;
                    }
                    drawn
                }
            }
        };
        write.commit().map_err(failed)?;
        Ok(key)
    }

    /// Commits the changes, all or none; they are on disk when this returns. Blocks.
    ///
    /// # Errors
    /// Writing fails; the store is then unchanged.
    pub fn commit(&self, changes: &[RecordChange]) -> Result<(), StoreError> {
        let write = self.database.begin_write().map_err(failed)?;
        for change in changes {
            match change {
                RecordChange::Ids(ids) => {
                    let mut meta = write.open_table(META).map_err(failed)?;
                    meta.insert(IDS, ids.encode_to_vec().as_slice()).map_err(failed)?;
                }
                RecordChange::PutApplication(record) => put(&write, APPLICATIONS, record.gaid, record)?,
                RecordChange::RemoveApplication(gaid) => remove(&write, APPLICATIONS, *gaid)?,
                RecordChange::PutEndpoint(record) => put(&write, ENDPOINTS, record.endpoint, record)?,
                RecordChange::RemoveEndpoint(endpoint) => remove(&write, ENDPOINTS, *endpoint)?,
                RecordChange::PutElement(record) => put(&write, ELEMENTS, record.element, record)?,
                RecordChange::RemoveElement(element) => remove(&write, ELEMENTS, *element)?,
                RecordChange::PutPool(record) => put(&write, POOLS, record.gaid, record)?,
                RecordChange::RemovePool(gaid) => remove(&write, POOLS, *gaid)?,
            }
        }
        write.commit().map_err(failed)
    }
}

type Table = TableDefinition<'static, u32, &'static [u8]>;

fn put(write: &WriteTransaction, table: Table, id: u32, record: &impl Message) -> Result<(), StoreError> {
    let mut table = write.open_table(table).map_err(failed)?;
    table.insert(id, record.encode_to_vec().as_slice()).map_err(failed)?;
    Ok(())
}

fn remove(write: &WriteTransaction, table: Table, id: u32) -> Result<(), StoreError> {
    let mut table = write.open_table(table).map_err(failed)?;
    table.remove(id).map_err(failed)?;
    Ok(())
}

fn records<T: Message + Default>(
    name: &'static str,
    table: &impl ReadableTable<u32, &'static [u8]>,
) -> Result<Vec<T>, StoreError> {
    let mut records = Vec::new();
    for entry in table.iter().map_err(failed)? {
        let (id, bytes) = entry.map_err(failed)?;
        records.push(decode(name, &id.value().to_string(), bytes.value())?);
    }
    Ok(records)
}

fn decode<T: Message + Default>(table: &'static str, id: &str, bytes: &[u8]) -> Result<T, StoreError> {
    T::decode(bytes).map_err(|source| StoreError::Record { table, id: id.into(), source })
}

fn failed(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Failed(Box::new(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{ApplicationRecord, IdsRecord};

    #[test]
    fn commit_is_atomic() {
        let store = Store::open(&StoreLocation::Memory).unwrap();
        assert_eq!(store.load().unwrap(), Snapshot::default());
        let ids = IdsRecord { gaid: 3, endpoint: 9, element: 1, first_epoch: 77, first: 1 };
        let token_key = Some([77, 78].into());
        let application =
            |gaid| ApplicationRecord { gaid, name: format!("app-{gaid}"), token_key, ..Default::default() };
        let changes = [
            RecordChange::Ids(ids),
            RecordChange::PutApplication(application(2)),
            RecordChange::PutApplication(application(1)),
        ];
        store.commit(&changes).unwrap();
        store.commit(&[RecordChange::RemoveApplication(1), RecordChange::RemoveEndpoint(5)]).unwrap();
        let expected = Snapshot { ids: Some(ids), applications: vec![application(2)], ..Snapshot::default() };
        assert_eq!(store.load().unwrap(), expected);
    }

    #[test]
    fn nodes_key_is_created_once() {
        let store = Store::open(&StoreLocation::Memory).unwrap();
        assert_eq!(store.nodes_key(|| None).unwrap(), None, "there is no randomness");
        let key = Some([1, 2].into());
        assert_eq!(store.nodes_key(|| key).unwrap(), key);
        assert_eq!(store.nodes_key(|| panic!("there is one")).unwrap(), key);
        assert_eq!(store.load().unwrap(), Snapshot::default());
    }

    #[test]
    fn store_of_other_version_is_refused() {
        let store = Store::open(&StoreLocation::Memory).unwrap();
        let write = store.database.begin_write().unwrap();
        write.open_table(META).unwrap().insert(FORMAT, [9].as_slice()).unwrap();
        write.commit().unwrap();
        let refused = store.claim().unwrap_err().to_string();
        assert_eq!(refused, "the store has format 9, expected 1: another version of the controller wrote it");
    }

    #[test]
    fn damaged_record_is_named() {
        let store = Store::open(&StoreLocation::Memory).unwrap();
        let write = store.database.begin_write().unwrap();
        write.open_table(ELEMENTS).unwrap().insert(7, [0xff; 3].as_slice()).unwrap();
        write.commit().unwrap();
        let damaged = store.load().unwrap_err().to_string();
        assert!(damaged.starts_with("the store's record 7 in elements is damaged: "), "{damaged}");
    }
}
