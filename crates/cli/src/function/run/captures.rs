//! Captures that come in: each at a port of the element, all in the order of their times.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_function::run::SERVER_PORT;
use pcap_file::pcap::{PcapReader, RawPcapPacket};
use pcap_file::{DataLink, PcapError, TsResolution};

use crate::failure::Failure;

/// `[PORT=]FILE`.
#[derive(Debug, Clone)]
pub(super) struct Named {
    port: Option<u16>,
    pub(super) file: PathBuf,
}

/// What an option's value means; digits before the first `=` are a port.
pub(super) fn named(word: &str) -> Result<Named, String> {
    let (port, file) = match word.split_once('=') {
        Some((digits, file)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (Some(port(digits)?), file)
        }
        _ => (None, word),
    };
    if file.is_empty() {
        return Err("expected a file, as in --pcap in.pcap or --pcap 1=in.pcap".into());
    }
    Ok(Named { port, file: file.into() })
}

/// A port that packets may come in at: those behind are the servers'.
pub(super) fn port(word: &str) -> Result<u16, String> {
    word.parse().ok().filter(|port| *port < SERVER_PORT).ok_or_else(|| {
        format!("{word} is no port of the element: it has 0 to {}, those behind are its servers'", SERVER_PORT - 1)
    })
}

/// A packet, and where it comes in.
pub(super) struct Arrived {
    pub(super) at: Duration,
    pub(super) port: u16,
    pub(super) bytes: Vec<u8>,
    /// The capture holds a part of it.
    pub(super) is_cut: bool,
}

/// All captures.
pub(super) struct Captures(Vec<Capture>);

struct Capture {
    path: PathBuf,
    port: u16,
    reader: PcapReader<BufReader<File>>,
    read: u64,
    /// Its next packet.
    next: Option<Arrived>,
}

impl Captures {
    /// Opens them; `port`: of those that name none.
    pub(super) fn open(named: &[Named], port: u16) -> Result<Self, Failure> {
        let open = |named: &Named| Capture::open(&named.file, named.port.unwrap_or(port));
        named.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// The packet that came first of those that are left.
    pub(super) fn next(&mut self) -> Result<Option<Arrived>, Failure> {
        // Of two at one time, that of the capture that was named first.
        let first = self.0.iter_mut().filter(|capture| capture.next.is_some());
        let first = first.min_by_key(|capture| capture.next.as_ref().map(|packet| packet.at));
        let Some(capture) = first else { return Ok(None) };
        let packet = capture.next.take();
        capture.next = capture.read()?;
        Ok(packet)
    }
}

impl Capture {
    fn open(path: &Path, port: u16) -> Result<Self, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), source };
        let wrong = |why: &str| Failure::Function(format!("{}: {why}", path.display()));
        let mut magic = Vec::new();
        File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic)).map_err(failed)?;
        match magic[..] {
            [] => return Err(wrong("is empty: expected a capture (pcap)")),
            [0x0a, 0x0d, 0x0d, 0x0a] => return Err(wrong("is pcapng: make it pcap with: editcap -F pcap IN OUT")),
            [0x1f, 0x8b, ..] => return Err(wrong("is compressed: unpack it with gunzip first")),
            _ => {}
        }
        let reader = PcapReader::new(BufReader::new(File::open(path).map_err(failed)?));
        let reader = reader.map_err(|_| wrong("is no capture: expected pcap, as tcpdump -w writes it"))?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(wrong(&format!(
                "has frames of link type {link:?}: functions see Ethernet; capture at one interface, not at `any`"
            )));
        }
        let mut capture = Self { path: path.to_owned(), port, reader, read: 0, next: None };
        capture.next = capture.read()?;
        Ok(capture)
    }

    fn read(&mut self) -> Result<Option<Arrived>, Failure> {
        let resolution = self.reader.header().ts_resolution;
        // As they are: captures that cut packets say so of each, which the checked way takes for a mistake.
        let packet = match self.reader.next_raw_packet() {
            None => return Ok(None),
            Some(Ok(packet)) => packet,
            Some(Err(error)) if is_end(&error) => {
                let (path, read) = (self.path.display(), self.read);
                return Err(Failure::Function(format!("{path}: ends in the middle of packet {}", read + 1)));
            }
            Some(Err(PcapError::IoError(source))) => return Err(Failure::File { path: self.path.clone(), source }),
            Some(Err(source)) => return Err(Failure::Capture { path: self.path.clone(), source }),
        };
        self.read += 1;
        let (at, is_cut) = (timestamp(&packet, resolution), packet.orig_len > packet.incl_len);
        Ok(Some(Arrived { at, port: self.port, bytes: packet.data.into_owned(), is_cut }))
    }
}

fn is_end(error: &PcapError) -> bool {
    match error {
        PcapError::IncompleteBuffer => true,
        PcapError::IoError(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

fn timestamp(packet: &RawPcapPacket<'_>, resolution: TsResolution) -> Duration {
    let fraction = match resolution {
        TsResolution::MicroSecond => Duration::from_micros(packet.ts_frac.into()),
        TsResolution::NanoSecond => Duration::from_nanos(packet.ts_frac.into()),
    };
    Duration::from_secs(packet.ts_sec.into()) + fraction
}
