//! Chunks of files from anywhere: no panic, and what unpacks is as long as its head says; what is packed comes out.
#![no_main]

use apps_chunk::{Codec, HEAD, Head, pack, plain, unpack};
use libfuzzer_sys::fuzz_target;

const RAW: usize = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let mut room = vec![0; HEAD + RAW];
    if let Ok(length) = unpack(data, &mut room) {
        assert_eq!(length, HEAD + Head::parse(data).expect("a head").raw as usize);
    }
    let chunk = plain(1, 2, 3, 4, data);
    for codec in [Codec::Words, Codec::Lz4] {
        let mut packed = vec![0; chunk.len()];
        let length = pack(codec, &chunk, &mut packed).expect("a plain chunk");
        assert_eq!(unpack(&packed[..length], &mut room), Ok(chunk.len()));
        assert_eq!(room[..chunk.len()], chunk);
    }
});
