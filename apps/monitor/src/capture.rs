//! Packet captures: pcap and pcapng, read packet by packet to the end, or to where they are damaged.
//!
//! Nothing here trusts the file: what can't be a packet is counted and passed over, and where the
//! framing itself is broken the rest can't be found, so reading ends there and says so.

use std::io::{self, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::{
    ENHANCED_PACKET_BLOCK, INTERFACE_DESCRIPTION_BLOCK, RawBlock, SECTION_HEADER_BLOCK, SIMPLE_PACKET_BLOCK,
};
use pcap_file::{DataLink, Endianness, PcapError};

/// The first block of a pcapng file, in either byte order.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// A packet as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What it begins with.
    pub link: DataLink,
    /// Its length on the wire, bytes; `data` may be shorter.
    pub wire_len: u32,
    /// What was kept of it.
    pub data: &'a [u8],
}

/// How reading ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// Packets that were found.
    pub packets: u64,
    /// Packet blocks that hold no packet.
    pub broken: u64,
    /// What ended it, unless it is the end of the file.
    pub damage: Option<String>,
}

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No capture, or not even its header is whole.
    #[error("neither a pcap nor a pcapng capture: {0}")]
    Header(String),
    /// It can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a capture and hands out its packets.
///
/// # Errors
/// When it is no capture. Damage further on is no error: it is said in [`End`].
pub fn read(mut source: impl Read, each: impl FnMut(Packet<'_>)) -> Result<End, CaptureError> {
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

fn read_pcap(mut reader: PcapReader<impl Read>, mut each: impl FnMut(Packet<'_>)) -> End {
    // The upper half of the field says other things.
    let link = DataLink::from(u32::from(reader.header().datalink) & 0xffff);
    let mut end = End::default();
    // Raw packets: the checked ones may not be longer on the wire than what is kept of them.
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

fn read_pcapng(mut reader: PcapNgReader<impl Read>, mut each: impl FnMut(Packet<'_>)) -> End {
    let mut links = Vec::new();
    let mut end = End::default();
    loop {
        // Of the section that a packet block is in.
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

/// The packet of a packet block, if it holds one of a known interface.
fn packet<'a>(block: &'a RawBlock<'_>, endianness: Endianness, links: &[DataLink]) -> Option<Packet<'a>> {
    let mut fields = Fields { endianness, rest: &block.body };
    if block.type_ == SIMPLE_PACKET_BLOCK {
        // Without a length of its own: padding at its end may belong to it or not.
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

/// What a reader says, with what is behind it.
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
