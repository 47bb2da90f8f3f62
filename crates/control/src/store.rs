//! The store: the controller's records in an embedded database, so that a restart loses none.
//!
//! Changes are committed together or not at all, and are on disk when [`Store::commit`] returns.
//! Each kind of record has a table by id; a record is the protobuf message of [`crate::state`].

use std::path::{Path, PathBuf};

use pathcall_proto::v1::TokenKey;
use prost::Message;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use crate::state::{Change, Snapshot};

const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const APPLICATIONS: TableDefinition<u32, &[u8]> = TableDefinition::new("applications");
const ENDPOINTS: TableDefinition<u32, &[u8]> = TableDefinition::new("endpoints");
const ELEMENTS: TableDefinition<u32, &[u8]> = TableDefinition::new("elements");
const POOLS: TableDefinition<u32, &[u8]> = TableDefinition::new("pools");

/// Keys of the table `meta`.
const IDS: &str = "ids";
const FORMAT: &str = "format";
const NODES_KEY: &str = "nodes-key";
/// What this version writes, and the only thing it reads.
const FORMAT_NOW: u8 = 1;
/// Memory for pages of the database; all records of a large controller fit.
const CACHE_BYTES: usize = 16 << 20;

/// Where the records are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// In memory: they end with the controller.
    #[default]
    Memory,
    /// In this file, made if there is none.
    File(PathBuf),
}

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the file open.
    #[error("store {} is in use: another controller may be running; choose another with --store", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file can't be opened or made.
    #[error("store {} can't be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the database says.
        source: Box<DatabaseError>,
    },
    /// Another version of the controller wrote the file.
    #[error("the store has format {got}, expected {FORMAT_NOW}: another version of the controller wrote it")]
    Format {
        /// The format found.
        got: u8,
    },
    /// A record can't be understood.
    #[error("the store's record {id} in {table} is damaged: {source}")]
    Record {
        /// The table.
        table: &'static str,
        /// Its key.
        id: String,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// Reading or writing failed.
    #[error("the store failed: {0}")]
    Failed(#[source] Box<redb::Error>),
}

/// The open store. One process at a time has it.
#[derive(Debug)]
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the store, making it if there is none.
    ///
    /// # Errors
    /// When the file can't be used, or is not a store of this version.
    pub fn open(place: &Place) -> Result<Self, StoreError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let (database, path): (_, &Path) = match place {
            Place::Memory => (builder.create_with_backend(InMemoryBackend::new()), Path::new("in memory")),
            Place::File(path) => (builder.create(path), path),
        };
        let database = database.map_err(|source| match source {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.into() },
            source => StoreError::Open { path: path.into(), source: Box::new(source) },
        })?;
        let store = Self { database };
        store.claim()?;
        Ok(store)
    }

    /// Makes the tables of a new store; refuses one of another format.
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
    /// When reading fails or a record is damaged.
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

    /// The key of the directory of nodes: the one that is kept, or else what `draw` gives, if it does. It blocks.
    ///
    /// # Errors
    /// When reading or writing fails, or the record is damaged.
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

    /// Makes the changes, all or none; they are on disk when this returns. It blocks.
    ///
    /// # Errors
    /// When writing fails; what is on disk is then as before.
    pub fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let write = self.database.begin_write().map_err(failed)?;
        for change in changes {
            match change {
                Change::Ids(ids) => {
                    let mut meta = write.open_table(META).map_err(failed)?;
                    meta.insert(IDS, ids.encode_to_vec().as_slice()).map_err(failed)?;
                }
                Change::PutApplication(record) => put(&write, APPLICATIONS, record.gaid, record)?,
                Change::RemoveApplication(gaid) => remove(&write, APPLICATIONS, *gaid)?,
                Change::PutEndpoint(record) => put(&write, ENDPOINTS, record.endpoint, record)?,
                Change::RemoveEndpoint(endpoint) => remove(&write, ENDPOINTS, *endpoint)?,
                Change::PutElement(record) => put(&write, ELEMENTS, record.element, record)?,
                Change::RemoveElement(element) => remove(&write, ELEMENTS, *element)?,
                Change::PutPool(record) => put(&write, POOLS, record.gaid, record)?,
                Change::RemovePool(gaid) => remove(&write, POOLS, *gaid)?,
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
    fn a_commit_is_kept_whole() {
        let store = Store::open(&Place::Memory).unwrap();
        assert_eq!(store.load().unwrap(), Snapshot::default());
        let ids = IdsRecord { gaid: 3, endpoint: 9, element: 1, first_epoch: 77, first: 1 };
        let token_key = Some([77, 78].into());
        let application =
            |gaid| ApplicationRecord { gaid, name: format!("app-{gaid}"), token_key, ..Default::default() };
        let changes =
            [Change::Ids(ids), Change::PutApplication(application(2)), Change::PutApplication(application(1))];
        store.commit(&changes).unwrap();
        store.commit(&[Change::RemoveApplication(1), Change::RemoveEndpoint(5)]).unwrap();
        let expected = Snapshot { ids: Some(ids), applications: vec![application(2)], ..Snapshot::default() };
        assert_eq!(store.load().unwrap(), expected);
    }

    #[test]
    fn key_of_the_nodes_is_drawn_once_and_kept() {
        let store = Store::open(&Place::Memory).unwrap();
        assert_eq!(store.nodes_key(|| None).unwrap(), None, "there is no randomness");
        let key = Some([1, 2].into());
        assert_eq!(store.nodes_key(|| key).unwrap(), key);
        assert_eq!(store.nodes_key(|| panic!("there is one")).unwrap(), key);
        assert_eq!(store.load().unwrap(), Snapshot::default());
    }

    #[test]
    fn a_store_of_another_version_is_refused() {
        let store = Store::open(&Place::Memory).unwrap();
        let write = store.database.begin_write().unwrap();
        write.open_table(META).unwrap().insert(FORMAT, [9].as_slice()).unwrap();
        write.commit().unwrap();
        let refused = store.claim().unwrap_err().to_string();
        assert_eq!(refused, "the store has format 9, expected 1: another version of the controller wrote it");
    }

    #[test]
    fn a_damaged_record_is_named() {
        let store = Store::open(&Place::Memory).unwrap();
        let write = store.database.begin_write().unwrap();
        write.open_table(ELEMENTS).unwrap().insert(7, [0xff; 3].as_slice()).unwrap();
        write.commit().unwrap();
        let damaged = store.load().unwrap_err().to_string();
        assert!(damaged.starts_with("the store's record 7 in elements is damaged: "), "{damaged}");
    }
}
