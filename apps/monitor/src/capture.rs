//! Reader of packet captures, pcap and pcapng, up to the end or to damage.
//!
//! The file is not trusted: invalid packets are counted and skipped; broken framing ends reading with a report, since
//! later packets can't be found.

use std::io::{self, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::{
    ENHANCED_PACKET_BLOCK, INTERFACE_DESCRIPTION_BLOCK, RawBlock, SECTION_HEADER_BLOCK, SIMPLE_PACKET_BLOCK,
};
use pcap_file::{DataLink, Endianness, PcapError};

/// First block of a pcapng file, in either byte order.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Link type of the first header.
    pub link: DataLink,
    /// Length on the wire in bytes; `data` may be shorter.
    pub wire_len: u32,
    /// Captured bytes.
    pub data: &'a [u8],
}

/// End of reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaptureEnd {
    /// Number of packets.
    pub packets: u64,
    /// Packet blocks without a valid packet.
    pub broken: u64,
    /// Reason of an early end.
    pub damage: Option<String>,
}

/// Reason for which a capture can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file is no capture, or its header is incomplete.
    #[error("neither a pcap nor a pcapng capture: {0}")]
    Header(String),
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a capture and passes each packet to `each`.
///
/// # Errors
/// Returns an error if the file is no capture. Later damage is reported in [`CaptureEnd`].
pub fn read(mut source: impl Read, each: impl FnMut(Packet<'_>)) -> Result<CaptureEnd, CaptureError> {
    let mut magic = Vec::new();
    source.by_ref().take(PCAPNG.len() as u64).read_to_end(&mut magic)?;
    let pcapng = magic == PCAPNG;
    let source = Cursor::new(magic).chain(source);
    let header = |error: PcapError| CaptureError::Header(words(&error));
    if pcapng {
        Ok(read_pcapng(PcapNgReader::new(source).map_err(header)?, each))
    } else {
        Ok(read_pcap(PcapReader::new(source).map_err(header)?, each))
    }
}

fn read_pcap(mut reader: PcapReader<impl Read>, mut each: impl FnMut(Packet<'_>)) -> CaptureEnd {
    // The upper half of the field has other contents.
    let link = DataLink::from(u32::from(reader.header().datalink) & 0xffff);
    let mut end = CaptureEnd::default();
    // Raw packets: the checked reader rejects packets that are longer on the wire than captured.
    while let Some(packet) = reader.next_raw_packet() {
        match packet {
            Ok(packet) => {
                end.packets += 1;
                each(Packet { link, wire_len: packet.orig_len, data: &packet.data });
            }
            Err(error) => {
                end.damage = Some(words(&error));
                break;
            }
        }
    }
    end
}

fn read_pcapng(mut reader: PcapNgReader<impl Read>, mut each: impl FnMut(Packet<'_>)) -> CaptureEnd {
    let mut links = Vec::new();
    let mut end = CaptureEnd::default();
    loop {
        // Byte order of the block's section.
        let endianness = reader.section().endianness;
        match reader.next_raw_block() {
            None => return end,
            Some(Ok(block)) => match block.type_ {
                SECTION_HEADER_BLOCK => links.clear(),
                INTERFACE_DESCRIPTION_BLOCK => {
                    let link = Fields { endianness, rest: &block.body }.u16().unwrap_or_default();
                    links.push(DataLink::from(u32::from(link)));
                }
                ENHANCED_PACKET_BLOCK | SIMPLE_PACKET_BLOCK => match packet(&block, endianness, &links) {
                    Some(packet) => {
                        end.packets += 1;
                        each(packet);
                    }
                    None => end.broken += 1,
                },
                _ => {}
            },
            Some(Err(error)) => {
                end.damage = Some(words(&error));
                return end;
            }
        }
    }
}

/// Packet of a packet block, if valid and of a known interface.
fn packet<'a>(block: &'a RawBlock<'_>, endianness: Endianness, links: &[DataLink]) -> Option<Packet<'a>> {
    let mut fields = Fields { endianness, rest: &block.body };
    if block.type_ == SIMPLE_PACKET_BLOCK {
        // The block has no length field for it: padding at its end may belong to it.
        let wire_len = fields.u32()?;
        let kept = fields.rest.len().min(wire_len as usize);
        return Some(Packet { link: *links.first()?, wire_len, data: &fields.rest[..kept] });
    }
    let link = *links.get(fields.u32()? as usize)?;
    let (_seconds, _fraction) = (fields.u32()?, fields.u32()?);
    let (kept, wire_len) = (fields.u32()? as usize, fields.u32()?);
    Some(Packet { link, wire_len, data: fields.rest.get(..kept)? })
}

/// Numbers in a block's byte order.
struct Fields<'a> {
    endianness: Endianness,
    rest: &'a [u8],
}

impl Fields<'_> {
    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take()?;
        Some(if self.endianness.is_big() { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take()?;
        Some(if self.endianness.is_big() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }
}

/// Message of a reader's error, with its cause.
fn words(error: &PcapError) -> String {
    match error {
        PcapError::IncompleteBuffer => "it ends in the middle".into(),
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => "it ends in the middle".into(),
        PcapError::IoError(error) => error.to_string(),
        PcapError::InvalidField(what) => (*what).to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "capture_tests.rs"]
mod tests;
