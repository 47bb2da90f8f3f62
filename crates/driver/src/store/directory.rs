//! Store in a directory, also on a file system that several hosts share.
//!
//! ```text
//! DIR/<application>/claim-7      sign of life of owner 7, which holds a lock on the file
//!                   log-7-1      segments of owner 7: the first group of each is a snapshot
//!                   log-7-2
//! ```
//!
//! Owners have numbers. A process that creates `claim-8` is the owner from then on: it reads the latest segment, and begins
//! its own with a snapshot. A standby creates the claim when nobody holds the lock of the latest one, because its process
//! has ended; or when the sign of life has not changed for [`LEASE`], because the process hangs.
//!
//! A former owner that goes on must not acknowledge anything. It looks for a later claim *after* each sync. If there is
//! none, the later owner reads the segment after this sync, and so has the batch. Later writes of the former owner are in
//! segments that nobody reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{BatchStore, BatchStoreError, Claimed, segment};

/// Time without a sign of life after which an owner counts as hung.
pub const LEASE: Duration = Duration::from_secs(10);
/// Interval at which a standby looks.
pub const LOOK: Duration = Duration::from_millis(200);
/// Looks of [`LEASE`]. A standby counts looks: while it is stopped itself, it learns nothing about the owner.
const LOOKS: u128 = LEASE.as_millis() / LOOK.as_millis();
/// Minimum size of a log at which a snapshot is written, bytes.
const SNAPSHOT_AT: u64 = 16 << 20;

/// Standby of one application: waits until it may become the owner.
#[derive(Debug)]
pub struct DirectoryStandby {
    folder: PathBuf,
    /// Latest claim, its sign of life, and the number of looks that saw the same.
    seen: (u64, Vec<u8>, u128),
}

/// Directory of an application, as its owner.
#[derive(Debug)]
pub struct DirectoryStore {
    folder: PathBuf,
    number: u64,
    claim: File,
    beats: u64,
    segment: Option<Segment>,
}

#[derive(Debug)]
struct Segment {
    file: File,
    path: PathBuf,
    index: u64,
    snapshot_bytes: u64,
    log_bytes: u64,
}

impl DirectoryStandby {
    /// Standby for an application in this directory, which is created.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(directory: &Path, application: &str) -> Result<Self, BatchStoreError> {
        let folder = directory.join(file_name(application));
        fs::create_dir_all(&folder).map_err(|source| failed("claim", &folder, source))?;
        Ok(Self { folder, seen: (0, Vec::new(), 0) })
    }

    /// Looks once; returns the store and its batches if this process is the owner now. Blocks.
    ///
    /// # Errors
    /// The store cannot be read or claimed, or it is damaged.
    pub fn look(&mut self) -> Result<Option<Claimed<DirectoryStore>>, BatchStoreError> {
        let latest = numbers::<1>(&self.folder, "claim-")?.into_iter().map(|claim| claim[0]).max().unwrap_or(0);
        if latest > 0 && !self.has_ended(latest)? {
            return Ok(None);
        }
        let Some(store) = DirectoryStore::claim(&self.folder, latest + 1)? else { return Ok(None) };
        let batches = store.recover()?;
        Ok(Some((store, batches)))
    }

    /// Whether the owner with this claim has ended, or hangs.
    fn has_ended(&mut self, number: u64) -> Result<bool, BatchStoreError> {
        let path = claim_path(&self.folder, number);
        let mut claim = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(claim) => claim,
            // An older claim is removed when there is a later one.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(failed("claim", &path, error)),
        };
        let mut sign = Vec::new();
        claim.read_to_end(&mut sign).map_err(|source| failed("read", &path, source))?;
        // A claim without a sign of life was just created, and is not locked yet.
        if !sign.is_empty() && claim.try_lock().is_ok() {
            return Ok(true);
        }
        let (known, before, looks) = &mut self.seen;
        if (*known, &*before) == (number, &sign) {
            *looks += 1;
        } else {
            self.seen = (number, sign, 0);
        }
        Ok(self.seen.2 > LOOKS)
    }
}

impl DirectoryStore {
    /// Becomes owner `number`; `None` if another process has been faster.
    fn claim(folder: &Path, number: u64) -> Result<Option<Self>, BatchStoreError> {
        let path = claim_path(folder, number);
        let claim = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(claim) => claim,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(failed("claim", &path, error)),
        };
        claim.lock().map_err(|source| failed("claim", &path, source))?;
        let mut store = Self { folder: folder.into(), number, claim, beats: 0, segment: None };
        store.sync_folder()?;
        store.beat()?;
        for old in numbers::<1>(folder, "claim-")?.into_iter().filter(|old| old[0] < number) {
            let _ = fs::remove_file(claim_path(folder, old[0]));
        }
        Ok(Some(store))
    }

    /// Batches of the latest segment.
    fn recover(&self) -> Result<Vec<Vec<u8>>, BatchStoreError> {
        let Some(latest) = self.segments()?.pop() else { return Ok(Vec::new()) };
        let path = self.segment_path(latest);
        let bytes = fs::read(&path).map_err(|source| failed("read", &path, source))?;
        segment::decode(&bytes).map_err(|at| BatchStoreError::Damaged { place: path, at })
    }

    /// Owner and index of all complete segments of earlier and this owner, in order.
    fn segments(&self) -> Result<Vec<[u64; 2]>, BatchStoreError> {
        let mut found: Vec<[u64; 2]> = numbers(&self.folder, "log-")?;
        found.retain(|[owner, _]| *owner <= self.number);
        found.sort_unstable();
        Ok(found)
    }

    fn segment_path(&self, [owner, index]: [u64; 2]) -> PathBuf {
        self.folder.join(format!("log-{owner}-{index}"))
    }

    fn sync_folder(&self) -> Result<(), BatchStoreError> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| failed("claim", &self.folder, source))
    }

    /// Fails if there is a later owner.
    fn check_claim(&self) -> Result<(), BatchStoreError> {
        let next = claim_path(&self.folder, self.number + 1);
        let later = next.try_exists().map_err(|source| failed("read", &next, source))?;
        // The next owner may have had a successor, which has removed its claim.
        let own = claim_path(&self.folder, self.number);
        let removed = !own.try_exists().map_err(|source| failed("read", &own, source))?;
        if later || removed { Err(BatchStoreError::TakenOver { place: self.folder.clone() }) } else { Ok(()) }
    }
}

impl BatchStore for DirectoryStore {
    fn append(&mut self, batches: &[Vec<u8>]) -> Result<(), BatchStoreError> {
        if self.segment.is_none() {
            self.replace(&[])?;
        }
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let group = segment::encode(batches);
        let written = segment.file.write_all(&group).and_then(|()| segment.file.sync_data());
        written.map_err(|source| failed("write", &segment.path, source))?;
        segment.log_bytes += group.len() as u64;
        self.check_claim()
    }

    fn replace(&mut self, snapshot: &[u8]) -> Result<(), BatchStoreError> {
        let index = self.segment.as_ref().map_or(1, |segment| segment.index + 1);
        let path = self.segment_path([self.number, index]);
        let unfinished = path.with_extension("new");
        let group = segment::encode(&[snapshot.to_vec()]);
        let begin = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
            file.write_all(&group)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            Ok(file)
        };
        let file = begin().map_err(|source| failed("write", &path, source))?;
        self.sync_folder()?;
        self.check_claim()?;
        // The segments before are not needed any more.
        for old in self.segments()?.into_iter().filter(|old| *old < [self.number, index]) {
            let _ = fs::remove_file(self.segment_path(old));
        }
        let snapshot_bytes = group.len() as u64;
        self.segment = Some(Segment { file, path, index, snapshot_bytes, log_bytes: 0 });
        Ok(())
    }

    fn wants_snapshot(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| segment.log_bytes > SNAPSHOT_AT.max(2 * segment.snapshot_bytes))
    }

    fn beat(&mut self) -> Result<(), BatchStoreError> {
        self.beats += 1;
        let sign = format!("{} {}\n", std::process::id(), self.beats);
        let written = self.claim.seek(SeekFrom::Start(0)).and_then(|_| self.claim.write_all(sign.as_bytes()));
        written.map_err(|source| failed("write", &claim_path(&self.folder, self.number), source))?;
        self.check_claim()
    }
}

fn claim_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("claim-{number}"))
}

/// Numbers in the names of the files with this prefix, as in `log-7-2`.
fn numbers<const N: usize>(folder: &Path, prefix: &str) -> Result<Vec<[u64; N]>, BatchStoreError> {
    let names = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>());
    let names = names.map_err(|source| failed("read", folder, source))?;
    let parse = |name: &str| {
        let parts =
            name.strip_prefix(prefix)?.split('-').map(|part| part.parse().ok()).collect::<Option<Vec<u64>>>()?;
        <[u64; N]>::try_from(parts).ok()
    };
    Ok(names.iter().filter_map(|name| parse(name.to_str()?)).collect())
}

/// File name of an application: letters, digits and `_`; other bytes as `%` and two digits.
fn file_name(application: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    application.bytes().map(encode).collect()
}

fn failed(what: &'static str, place: &Path, source: io::Error) -> BatchStoreError {
    BatchStoreError::Failed { what, place: place.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pathcall-store-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn standby(&self) -> DirectoryStandby {
            DirectoryStandby::new(&self.0, "A/1").expect("created")
        }

        fn own(&self) -> (DirectoryStore, Vec<Vec<u8>>) {
            self.standby().look().expect("readable").expect("no owner")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn batch(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn next_owner_has_the_batches_of_the_former_one() {
        let folder = Folder::new("next");
        let (mut first, recovered) = folder.own();
        assert!(recovered.is_empty());
        first.append(&[batch("a"), batch("b")]).expect("written");
        let mut standby = folder.standby();
        assert!(standby.look().expect("readable").is_none(), "the owner lives");
        first.append(&[batch("c")]).expect("written");
        drop(first);
        let (mut second, recovered) = standby.look().expect("readable").expect("the owner has ended");
        assert_eq!(recovered, [batch(""), batch("a"), batch("b"), batch("c")]);
        second.replace(b"all").expect("written");
        second.append(&[batch("d")]).expect("written");
        drop(second);
        let (store, recovered) = folder.own();
        assert_eq!(recovered, [batch("all"), batch("d")]);
        assert_eq!(store.segments().expect("readable"), [[2, 1]], "the first owner's segments are removed");
    }

    #[test]
    fn owner_without_sign_of_life_is_replaced_and_may_not_write() {
        let folder = Folder::new("hung");
        let (mut first, _) = folder.own();
        first.append(&[batch("a")]).expect("written");
        let mut standby = folder.standby();
        for look in 0..=LOOKS {
            assert!(standby.look().expect("readable").is_none(), "look {look}");
        }
        first.beat().expect("still the owner");
        for look in 0..=LOOKS {
            assert!(standby.look().expect("readable").is_none(), "look {look} after a sign of life");
        }
        let (mut second, recovered) = standby.look().expect("readable").expect("the owner hangs");
        assert_eq!(recovered, [batch(""), batch("a")]);
        second.replace(b"a").expect("written");
        for late in [first.append(&[batch("late")]), first.beat(), first.replace(b"late")] {
            assert!(matches!(late, Err(BatchStoreError::TakenOver { .. })), "{late:?}");
        }
        second.append(&[batch("b")]).expect("the owner");
        drop((first, second));
        assert_eq!(folder.own().1, [batch("a"), batch("b")]);
    }

    #[test]
    fn one_of_two_standbys_becomes_the_owner() {
        let folder = Folder::new("two");
        drop(folder.own());
        let (mut one, mut other) = (folder.standby(), folder.standby());
        let owner = one.look().expect("readable").expect("no owner");
        assert!(other.look().expect("readable").is_none());
        assert!(DirectoryStore::claim(&owner.0.folder, 2).expect("readable").is_none(), "the claim exists");
    }

    #[test]
    fn damaged_segment_is_named() {
        let folder = Folder::new("damaged");
        let (mut first, _) = folder.own();
        first.append(&[batch("a")]).expect("written");
        first.append(&[batch("b")]).expect("written");
        let path = first.segment_path([1, 1]);
        drop(first);
        let mut bytes = fs::read(&path).expect("readable");
        bytes[20] ^= 1;
        fs::write(&path, bytes).expect("writable");
        let error = folder.standby().look().expect_err("damaged").to_string();
        assert_eq!(error, format!("the owner's state in {} is damaged at byte 16", path.display()));
    }

    #[test]
    fn log_that_outgrows_its_snapshot_wants_another() {
        let folder = Folder::new("grows");
        let (mut store, _) = folder.own();
        store.append(&[vec![0; SNAPSHOT_AT as usize]]).expect("written");
        assert!(store.wants_snapshot());
        store.replace(b"small").expect("written");
        assert!(!store.wants_snapshot());
    }
}
