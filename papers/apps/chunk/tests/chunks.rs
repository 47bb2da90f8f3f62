//! Round trips of chunks, and robustness against arbitrary input.

use apps_chunk::{ChunkHeader, Codec, Form, HEADER_LEN, check, pack, plain, unpack, words};
use proptest::collection::vec;
use proptest::prelude::*;

const CODECS: [Codec; 2] = [Codec::Words, Codec::Lz4];

fn packed(codec: Codec, chunk: &[u8]) -> Vec<u8> {
    let mut to = vec![0xaa; chunk.len()];
    let bytes = pack(codec, chunk, &mut to).expect("a plain chunk");
    to.truncate(bytes);
    to
}

fn unpacked(chunk: &[u8]) -> Vec<u8> {
    let raw = ChunkHeader::parse(chunk).expect("a head").raw as usize;
    let mut to = vec![0x55; HEADER_LEN + raw];
    assert_eq!(unpack(chunk, &mut to), Ok(HEADER_LEN + raw));
    to
}

/// Random bytes of several kinds: noise, runs, texts of few letters, columns of close or increasing numbers.
fn raw() -> impl Strategy<Value = Vec<u8>> {
    let column = (any::<u32>(), 0..33_u32, any::<bool>(), vec(any::<u32>(), 0..1200), 0..4_usize);
    let column = column.prop_map(|(base, bits, goes_on, words, rest)| {
        let mut last = base;
        let words = words.into_iter().map(|word| {
            let word = (u64::from(word) & ((1 << bits) - 1)) as u32;
            last = if goes_on { last.wrapping_add(word) } else { base.wrapping_add(word) };
            last
        });
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes[rest.min(bytes.len())..].to_vec()
    });
    let runs = vec((any::<u8>(), 1..300_usize), 0..40);
    let runs =
        runs.prop_map(|runs| runs.into_iter().flat_map(|(byte, many)| std::iter::repeat_n(byte, many)).collect());
    prop_oneof![vec(any::<u8>(), 0..3000), vec(97..101_u8, 0..3000), runs, column]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn packed_chunks_round_trip(raw in raw(), file: u64, version: u64, index in 0..9_u32) {
        let chunk = plain(file, version, index, 9, &raw);
        for codec in CODECS {
            let packed = packed(codec, &chunk);
            prop_assert!(packed.len() <= chunk.len());
            prop_assert_eq!(packed.len() == chunk.len(), packed[4] == Form::Stored as u8);
            let out = unpacked(&packed);
            prop_assert_eq!(&out, &chunk);
            let (head, bytes) = check(&out).expect("the original chunk");
            prop_assert_eq!((head.file, head.version, head.index, bytes), (file, version, index, &raw[..]));
        }
    }

    #[test]
    fn corrupted_chunk_is_rejected_or_fails_checksum(raw in raw(), at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let chunk = plain(1, 2, 3, 4, &raw);
        for codec in CODECS {
            let mut packed = packed(codec, &chunk);
            let at = at.index(packed.len());
            packed[at] = to;
            let mut room = vec![0; chunk.len()];
            for bytes in [&packed[..], &packed[..cut.index(packed.len() + 1)]] {
                // Unpacking must not panic. A chunk that unpacks to other bytes has another checksum.
                if let Ok(length) = unpack(bytes, &mut room)
                    && let Ok((head, out)) = check(&room[..length])
                {
                    prop_assert!(out == raw || head.sum != ChunkHeader::parse(&chunk).expect("a head").sum);
                }
            }
        }
    }

    #[test]
    fn unpack_accepts_arbitrary_bytes_without_panic(form in 1..4_u8, raw in 0..70_000_u32, bytes in vec(any::<u8>(), 0..2000)) {
        let mut chunk = ChunkHeader { form: Form::Plain, file: 0, version: 0, index: 0, count: 1, raw, sum: 0 }.emit().to_vec();
        chunk[4] = form;
        chunk.extend(&bytes);
        let mut room = vec![0; HEADER_LEN + 70_000];
        for bytes in [&chunk[..], &bytes] {
            assert_header_length(bytes, &mut room)?;
        }
    }

    /// Input close to valid packed data, so that blocks and their inner lengths are reached.
    #[test]
    fn unpacked_length_equals_header_length(
        raw in raw(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        more in vec(any::<u8>(), 0..40),
    ) {
        let chunk = plain(1, 2, 3, 4, &raw);
        let mut room = vec![0; HEADER_LEN + 70_000];
        for codec in CODECS {
            let mut packed = packed(codec, &chunk);
            packed.extend(&more);
            for (at, to) in &changes {
                let at = at.index(packed.len());
                packed[at] = *to;
            }
            assert_header_length(&packed, &mut room)?;
        }
    }
}

/// Arbitrary input must not panic, whether the buffer suffices or not.
fn assert_header_length(bytes: &[u8], room: &mut [u8]) -> Result<(), TestCaseError> {
    let little = room.len() / 100;
    for end in [little, room.len()] {
        if let Ok(length) = unpack(bytes, &mut room[..end]) {
            prop_assert_eq!(length, HEADER_LEN + ChunkHeader::parse(bytes).expect("a head").raw as usize);
        }
    }
    Ok(())
}

#[test]
fn long_chunks_with_several_blocks_round_trip() {
    let text: Vec<u8> = (0..300_000_u32).flat_map(|i| (i % 700).to_le_bytes()).take(300_001).collect();
    let noise: Vec<u8> = (0..70_000_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let mixed: Vec<u8> = text[..65_536].iter().chain(&noise).chain(&text).copied().collect();
    for raw in [text, noise, mixed] {
        let chunk = plain(7, 1, 0, 1, &raw);
        for codec in CODECS {
            assert_eq!(unpacked(&packed(codec, &chunk)), chunk, "{} of {} bytes", codec.name(), raw.len());
        }
    }
}

#[test]
fn packed_words_use_minimal_width() {
    // 256 words within a range of 1,000: ten bits each.
    let near: Vec<u8> = (0..256_u32).flat_map(|i| (4_000_000_000 + i * 389 % 1000).to_le_bytes()).collect();
    // 256 words that grow by 5: after the first row, the difference from the row before is 20, folded 40: six bits.
    let grow: Vec<u8> = (0..256_u32).flat_map(|i| (i * 5 + (1 << 31)).to_le_bytes()).collect();
    for (raw, width) in [(near, 10), (grow, 6)] {
        let mut to = vec![0; raw.len()];
        assert_eq!(words::pack(&raw, &mut to), Some(2 * (words::ABOUT + words::ROW * width)));
    }
    // Words that need all bits are not packed.
    let noise: Vec<u8> = (0..256_u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    assert_eq!(words::pack(&noise, &mut vec![0; noise.len()]), None);
}

#[test]
fn chunk_errors_are_described() {
    let chunk = plain(1, 1, 0, 1, &[7; 600]);
    let mut room = vec![0; 2000];
    let message = |result: Result<usize, apps_chunk::ChunkError>| result.expect_err("refused").to_string();
    assert_eq!(message(unpack(&chunk, &mut room)), "chunk of form 0, expected a packed chunk");
    assert_eq!(message(unpack(b"PCF1", &mut room)), "not a chunk: 4 bytes without PCF1 and a header of 48 bytes");
    assert_eq!(
        message(pack(Codec::Lz4, &chunk[..640], &mut room)),
        "chunk with 592 bytes after its header, expected 600"
    );
    assert_eq!(message(pack(Codec::Words, &chunk, &mut [0; 9])), "output buffer too short: chunk needs 648 bytes");
    let mut other = chunk.clone();
    other[HEADER_LEN] = 8;
    assert!(check(&other).expect_err("other bytes").to_string().starts_with("chunk 0 of file 1 has checksum"));
    other[24..28].copy_from_slice(&5_u32.to_be_bytes());
    assert_eq!(check(&other).expect_err("no such chunk").to_string(), "chunk index 5 of a file with 1 chunks");
    let mut packed = packed(Codec::Words, &chunk);
    packed[HEADER_LEN + 4] = 33;
    assert_eq!(message(unpack(&packed, &mut room)), "block 0 of a chunk is malformed");
}
