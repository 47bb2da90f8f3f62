//! Output of a function: packets to a capture, digests to a file, all counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_p4::exec::{DropReason, Output};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Destination of packets and digests.
pub(super) struct Sink {
    out: PathBuf,
    /// `None` once all is written.
    packets: Option<PcapWriter<BufWriter<File>>>,
    digests: Option<(PathBuf, BufWriter<File>)>,
    /// Time at which the current output leaves.
    pub(super) at: Duration,
    pub(super) ports: BTreeMap<u16, u64>,
    pub(super) dropped: BTreeMap<DropReason, u64>,
    pub(super) digests_by_name: BTreeMap<String, u64>,
    failed: Option<Failure>,
}

impl Sink {
    pub(super) fn create(out: &Path, digests: Option<&Path>) -> Result<Self, Failure> {
        let create = |path: &Path| {
            let created = File::create(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
            Ok::<_, Failure>(BufWriter::new(created))
        };
        let writer = PcapWriter::with_header(create(out)?, PcapHeader::default());
        Ok(Self {
            out: out.to_owned(),
            packets: Some(writer.map_err(|source| Failure::Capture { path: out.to_owned(), source })?),
            digests: digests.map(|path| Ok::<_, Failure>((path.to_owned(), create(path)?))).transpose()?,
            at: Duration::ZERO,
            ports: BTreeMap::new(),
            dropped: BTreeMap::new(),
            digests_by_name: BTreeMap::new(),
            failed: None,
        })
    }

    pub(super) fn take(&mut self, output: Output<'_>) {
        match output {
            Output::Packet { port, bytes } => {
                *self.ports.entry(port).or_default() += 1;
                let packet = PcapPacket::new(self.at, bytes.len() as u32, bytes);
                let written = self.packets.as_mut().map(|writer| writer.write_packet(&packet));
                if let Some(Err(source)) = written {
                    self.failed.get_or_insert(Failure::Capture { path: self.out.clone(), source });
                }
            }
            Output::Dropped(reason) => *self.dropped.entry(reason).or_default() += 1,
            Output::Digest { name, values } => {
                *self.digests_by_name.entry(name.to_owned()).or_default() += 1;
                let Some((path, file)) = &mut self.digests else { return };
                let at = format!("{}.{:06}", self.at.as_secs(), self.at.subsec_micros());
                let values: Vec<Value> = values.iter().copied().map(number).collect();
                let line = json!({ "at": at, "name": name, "values": values });
                if let Err(source) = writeln!(file, "{line}") {
                    self.failed.get_or_insert(Failure::File { path: path.clone(), source });
                }
            }
        }
    }

    /// Flushes all files, or returns the first error.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        if let Some(writer) = self.packets.take() {
            writer.into_writer().flush().map_err(|source| Failure::File { path: self.out.clone(), source })?;
        }
        let Some((path, file)) = &mut self.digests else { return Ok(()) };
        file.flush().map_err(|source| Failure::File { path: path.clone(), source })
    }
}

/// Formats a number: JSON numbers end at 64 bits, so wider ones are hexadecimal.
fn number(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| format!("{value:#x}").into(), Value::from)
}
