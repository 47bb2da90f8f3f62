//! Input captures: each at a port of the element, merged by time.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathcall_netfn::run::SERVER_PORT;
use pcap_file::pcap::{PcapReader, RawPcapPacket};
use pcap_file::{DataLink, PcapError, TsResolution};

use crate::failure::Failure;

/// Value of the option `[PORT=]FILE`.
#[derive(Debug, Clone)]
pub(super) struct NamedCapture {
    port: Option<u16>,
    pub(super) file: PathBuf,
}

/// Parses the value of the option; digits before the first `=` are a port.
pub(super) fn named(word: &str) -> Result<NamedCapture, String> {
    let (port, file) = match word.split_once('=') {
        Some((digits, file)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (Some(port(digits)?), file)
        }
        _ => (None, word),
    };
    if file.is_empty() {
        return Err("expected a file, as in --pcap in.pcap or --pcap 1=in.pcap".into());
    }
    Ok(NamedCapture { port, file: file.into() })
}

/// Parses an input port; the ports above are those of the servers.
pub(super) fn port(word: &str) -> Result<u16, String> {
    word.parse()
        .ok()
        .filter(|port| *port < SERVER_PORT)
        .ok_or_else(|| format!("invalid port {word} (0 to {}; higher ports belong to the servers)", SERVER_PORT - 1))
}

/// Packet with its arrival time and port.
pub(super) struct CapturedPacket {
    pub(super) at: Duration,
    pub(super) port: u16,
    pub(super) bytes: Vec<u8>,
    /// The capture has only a part of the packet.
    pub(super) is_cut: bool,
}

/// All captures, merged.
pub(super) struct Captures(Vec<Capture>);

struct Capture {
    path: PathBuf,
    port: u16,
    reader: PcapReader<BufReader<File>>,
    read: u64,
    /// Next packet.
    next: Option<CapturedPacket>,
}

impl Captures {
    /// Opens the captures; `port` applies to those without a port.
    pub(super) fn open(named: &[NamedCapture], port: u16) -> Result<Self, Failure> {
        let open = |named: &NamedCapture| Capture::open(&named.file, named.port.unwrap_or(port));
        named.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Earliest remaining packet.
    pub(super) fn next(&mut self) -> Result<Option<CapturedPacket>, Failure> {
        // At equal times, the capture that was named first comes first.
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
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                return Err(wrong("is in pcapng format: convert it with editcap -F pcap IN OUT"));
            }
            [0x1f, 0x8b, ..] => return Err(wrong("is compressed: decompress it with gunzip")),
            _ => {}
        }
        let reader = PcapReader::new(BufReader::new(File::open(path).map_err(failed)?));
        let reader = reader.map_err(|_| wrong("is not a capture: expected pcap format, as tcpdump -w writes it"))?;
        let link = reader.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(wrong(&format!(
                "has link type {link:?}: functions need Ethernet; capture on one interface, not on `any`"
            )));
        }
        let mut capture = Self { path: path.to_owned(), port, reader, read: 0, next: None };
        capture.next = capture.read()?;
        Ok(capture)
    }

    fn read(&mut self) -> Result<Option<CapturedPacket>, Failure> {
        let resolution = self.reader.header().ts_resolution;
        // Raw packets: the checked reader treats a truncated packet as an error.
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
        Ok(Some(CapturedPacket { at, port: self.port, bytes: packet.data.into_owned(), is_cut }))
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
