//! Log of a replica on disk: records, each with its length and checksum, in a file that is rewritten after a snapshot.
//!
//! ```text
//! append(records) ─► one write and one fdatasync for all of them ─► answers may leave
//! ```
//!
//! A crash may leave an incomplete record at the end. It was not answered for, so it is cut off.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use prost::Message as _;

use crate::consensus::Record;
use crate::pb;

/// Length and checksum before each record.
const HEADER_LEN: usize = 12;
const FILE: &str = "paxos.log";
const NEW_FILE: &str = "paxos.log.new";

/// Open log.
#[derive(Debug)]
pub struct DiskLog {
    directory: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl DiskLog {
    /// Opens the log of a directory, which is created if it does not exist, and reads its records.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written.
    pub fn open(directory: &Path) -> Result<(Self, Vec<Record>)> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join(FILE);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open the log {}", path.display()))?;
        // The name of a new file is on disk too.
        File::open(directory)?.sync_all()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(|| format!("cannot read the log {}", path.display()))?;
        let (records, len) = parse(&bytes);
        file.set_len(len as u64)?;
        file.seek(SeekFrom::End(0))?;
        Ok((Self { directory: directory.to_owned(), file, buffer: Vec::new() }, records))
    }

    /// Appends records, and waits until they are on disk.
    ///
    /// # Errors
    /// Returns an error if they may not be on disk. The replica must not answer then.
    pub fn append(&mut self, records: &[Record]) -> Result<()> {
        self.buffer.clear();
        records.iter().for_each(|record| put(record, &mut self.buffer));
        self.file.write_all(&self.buffer).context("cannot write the log")?;
        self.file.sync_data().context("cannot write the log to its disk")
    }

    /// Replaces the log by these records.
    ///
    /// # Errors
    /// Returns an error if they may not be on disk.
    pub fn rewrite(&mut self, records: &[Record]) -> Result<()> {
        self.buffer.clear();
        records.iter().for_each(|record| put(record, &mut self.buffer));
        let (new, path) = (self.directory.join(NEW_FILE), self.directory.join(FILE));
        let mut file = File::create(&new).with_context(|| format!("cannot create {}", new.display()))?;
        file.write_all(&self.buffer).with_context(|| format!("cannot write {}", new.display()))?;
        file.sync_all().with_context(|| format!("cannot write {} to its disk", new.display()))?;
        std::fs::rename(&new, &path).with_context(|| format!("cannot rename {}", new.display()))?;
        File::open(&self.directory)?.sync_all()?;
        self.file = file;
        Ok(())
    }
}

/// Checksum of a record: FNV-1a.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn put(record: &Record, buffer: &mut Vec<u8>) {
    let bytes = pb::LogRecord::from(record).encode_to_vec();
    buffer.extend((bytes.len() as u32).to_le_bytes());
    buffer.extend(checksum(&bytes).to_le_bytes());
    buffer.extend(bytes);
}

/// Complete records, and their length in the file.
fn parse(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Ok((record, len)) = parse_one(&bytes[at..]) {
        records.push(record);
        at += len;
    }
    (records, at)
}

fn parse_one(bytes: &[u8]) -> Result<(Record, usize)> {
    let header = bytes.get(..HEADER_LEN).context("no header")?;
    let len = u32::from_le_bytes(header[..4].try_into()?) as usize;
    let body = bytes.get(HEADER_LEN..HEADER_LEN + len).context("no body")?;
    ensure!(checksum(body).to_le_bytes() == header[4..], "wrong checksum");
    Ok((pb::LogRecord::decode(body)?.try_into()?, HEADER_LEN + len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::{Accepted, BallotNumber, Value};

    fn records() -> Vec<Record> {
        let ballot = BallotNumber { round: 3, leader: 2 };
        let accept = |slot, value| Record::Accept(Accepted { slot, ballot, value });
        let command = Value::Command(b"command".as_slice().into());
        vec![Record::Promise(ballot), accept(1, command), accept(2, Value::Noop)]
    }

    #[test]
    fn log_cut_at_any_byte_keeps_complete_records() {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for record in records() {
            put(&record, &mut bytes);
            ends.push(bytes.len());
        }
        for len in 0..=bytes.len() {
            let complete = ends.iter().filter(|end| **end <= len).count() - 1;
            assert_eq!(parse(&bytes[..len]), (records()[..complete].to_vec(), ends[complete]));
        }
        bytes[HEADER_LEN] ^= 1;
        assert_eq!(parse(&bytes), (Vec::new(), 0));
    }

    #[test]
    fn reopened_log_has_appended_and_rewritten_records() {
        let directory = std::env::temp_dir().join(format!("paxos-disk-{}", std::process::id()));
        let (mut log, found) = DiskLog::open(&directory).unwrap();
        assert_eq!(found, []);
        log.append(&records()).unwrap();
        let (mut log, found) = DiskLog::open(&directory).unwrap();
        assert_eq!(found, records());
        let snapshot = Record::Snapshot { upto: 2, state: b"state".as_slice().into() };
        log.rewrite(std::slice::from_ref(&snapshot)).unwrap();
        log.append(&records()[..1]).unwrap();
        let (_, found) = DiskLog::open(&directory).unwrap();
        assert_eq!(found, [snapshot, records()[0].clone()]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
