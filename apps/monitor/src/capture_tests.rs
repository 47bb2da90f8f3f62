use super::*;
use crate::generate;

/// Result of reading, with lengths on the wire.
fn lengths(bytes: &[u8]) -> (CaptureEnd, Vec<u32>) {
    let mut lengths = Vec::new();
    let end = read(bytes, |packet| lengths.push(packet.wire_len)).unwrap();
    (end, lengths)
}

/// Block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = (padded as u32 + 12).to_le_bytes();
    let mut block = [&kind.to_le_bytes()[..], &len, body].concat();
    block.resize(8 + padded, 0);
    block.extend(len);
    block
}

fn section() -> Vec<u8> {
    let body = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    [block(SECTION_HEADER_BLOCK, &body), block(INTERFACE_DESCRIPTION_BLOCK, &[1, 0, 0, 0, 0, 0, 0, 0])].concat()
}

fn enhanced(interface: u32, kept: u32, wire: u32, data: &[u8]) -> Vec<u8> {
    let words = [interface, 0, 0, kept, wire].map(u32::to_le_bytes).concat();
    block(ENHANCED_PACKET_BLOCK, &[&words, data].concat())
}

#[test]
fn generated_capture_is_deterministic() {
    let capture = generate::capture(3, 500).unwrap();
    assert_eq!(capture, generate::capture(3, 500).unwrap());
    assert_ne!(capture, generate::capture(4, 500).unwrap());
    let (end, lengths) = lengths(&capture);
    assert_eq!((end, lengths.len()), (CaptureEnd { packets: 500, ..CaptureEnd::default() }, 500));
    assert!(lengths.iter().any(|len| *len > 1000), "no packet is longer than its captured part");
}

#[test]
fn pcapng_broken_blocks_are_counted() {
    let file = [
        section(),
        enhanced(0, 3, 1500, b"abc"),
        // An unknown interface, and a length beyond the block.
        enhanced(9, 3, 60, b"abc"),
        enhanced(0, u32::MAX, 60, b"abc"),
        block(SIMPLE_PACKET_BLOCK, &[&[2, 0, 0, 0][..], b"xyzw"].concat()),
        block(SIMPLE_PACKET_BLOCK, &[]),
        block(0x4242, b"not a packet"),
    ];
    let mut found = Vec::new();
    let end = read(&file.concat()[..], |p| found.push((p.link, p.wire_len, p.data.to_vec()))).unwrap();
    assert_eq!(end, CaptureEnd { packets: 2, broken: 3, damage: None });
    let ethernet = DataLink::ETHERNET;
    assert_eq!(found, [(ethernet, 1500, b"abc".to_vec()), (ethernet, 2, b"xy".to_vec())]);
}

#[test]
fn truncated_capture_is_read_to_its_end() {
    for file in [generate::capture(1, 3).unwrap(), [section(), enhanced(0, 3, 60, b"abc")].concat()] {
        let (whole, _) = lengths(&file);
        for len in 0..file.len() {
            match read(&file[..len], |_| ()) {
                Ok(end) => assert!(end.packets < whole.packets, "{len}: {end:?}"),
                Err(CaptureError::Header(_)) => assert!(len < 28, "{len}"),
                Err(CaptureError::Io(error)) => panic!("{len}: {error}"),
            }
        }
    }
}

#[test]
fn corrupted_bytes_never_panic() {
    for file in [generate::capture(1, 4).unwrap(), [section(), enhanced(0, 3, 60, b"abc")].concat()] {
        for at in 0..file.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut file = file.clone();
                file[at] = value;
                let _ = read(&file[..], |packet| {
                    crate::flow::Flow::of(&packet);
                });
            }
        }
    }
}

#[test]
fn invalid_capture_is_refused() {
    for file in [&b""[..], b"GIF", b"Hello, this is not a capture at all."] {
        assert!(matches!(read(file, |_| ()), Err(CaptureError::Header(_))), "{file:?}");
    }
}
