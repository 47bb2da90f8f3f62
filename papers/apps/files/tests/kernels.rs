//! Kernels and processor pack and unpack identically, and kernels reject invalid chunks.

use std::sync::Arc;
use std::time::Duration;

use apps_chunk::{ChunkHeader, Codec, Form, HEADER_LEN, kernel, pack, plain, unpack};
use bytes::Bytes;
use crossbeam_channel::bounded;
use files::tasks;
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{ComputeDevice, DeviceKind, FunctionId, Job, TaskCode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Bytes of the longest chunk in these tests.
const RAW: usize = 300_000;

struct Kernels {
    device: Arc<dyn ComputeDevice>,
    pack: FunctionId,
    unpack: FunctionId,
}

impl Kernels {
    fn new() -> Option<Self> {
        let device = match open(&DeviceChoice::OpenCl(0)) {
            Ok(device) => device,
            Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
                println!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let load = |name, codes: Vec<TaskCode>| {
            let code = codes.into_iter().find(|code| code.runs_on(DeviceKind::OpenCl)).expect("a kernel");
            device.load(name, &code).expect("a compiled kernel")
        };
        let packs = load(kernel::PACK, tasks::compress_on_accelerators(Codec::Words, 0));
        let unpacks = load(kernel::UNPACK, tasks::decompress_on_accelerators(0));
        Some(Self { device, pack: packs, unpack: unpacks })
    }

    fn run(&self, function: FunctionId, input: &[u8]) -> Option<Vec<u8>> {
        let region = self.device.register(HEADER_LEN + RAW, HEADER_LEN + RAW).expect("memory");
        let (done, completions) = bounded(1);
        let job = Job { tag: 0, function, input: Bytes::copy_from_slice(input), region, done };
        self.device.submit(job).expect("room");
        let completion = completions.recv_timeout(Duration::from_secs(60)).expect("an answer");
        let bytes = completion.result.ok()?;
        Some(completion.region.expect("its memory").output(bytes).to_vec())
    }
}

fn on_processor(
    work: impl Fn(&[u8], &mut [u8]) -> Result<usize, apps_chunk::ChunkError>,
    chunk: &[u8],
) -> Option<Vec<u8>> {
    let mut to = vec![0; HEADER_LEN + RAW];
    let bytes = work(chunk, &mut to).ok()?;
    to.truncate(bytes);
    Some(to)
}

/// Random chunks of all lengths and kinds, with a different width in each block.
fn chunk(random: &mut StdRng, at: usize) -> Vec<u8> {
    let bytes = if at.is_multiple_of(8) { random.random_range(100_000..RAW) } else { random.random_range(0..6000) };
    let (mut value, mut bits, mut goes_on) = (0_u32, 0, false);
    let mut raw = Vec::with_capacity(bytes + 4);
    while raw.len() < bytes {
        if raw.len().is_multiple_of(512) {
            (value, bits, goes_on) =
                (random.random(), random.random_range(0..=if at.is_multiple_of(3) { 32 } else { 20 }), random.random());
        }
        let step = random.random::<u32>().checked_shr(32 - bits).unwrap_or(0);
        let word = value.wrapping_add(step);
        value = if goes_on { word.wrapping_sub(1 << (bits.max(1) - 1)) } else { value };
        raw.extend(word.to_le_bytes());
    }
    raw.truncate(bytes);
    plain(random.random(), random.random(), at as u32, u32::MAX, &raw)
}

#[test]
fn kernels_pack_identically_to_processor() {
    let Some(kernels) = Kernels::new() else { return };
    let mut random = StdRng::seed_from_u64(8);
    let mut forms = [0; 4];
    for at in 0..200 {
        let chunk = chunk(&mut random, at);
        let packed = on_processor(|from, to| pack(Codec::Words, from, to), &chunk).expect("a plain chunk");
        assert!(kernels.run(kernels.pack, &chunk).as_ref() == Some(&packed), "chunk {at} is packed differently");
        let lz4 = on_processor(|from, to| pack(Codec::Lz4, from, to), &chunk).expect("a plain chunk");
        for packed in [packed, lz4] {
            forms[ChunkHeader::parse(&packed).expect("a head").form as usize] += 1;
            assert!(
                kernels.run(kernels.unpack, &packed).as_ref() == Some(&chunk),
                "chunk {at} is unpacked differently"
            );
        }
    }
    assert!(forms[1..].iter().all(|count| *count > 10), "{forms:?}");
    assert_eq!(kernels.run(kernels.unpack, &chunk(&mut random, 1)), None, "a plain chunk is rejected");
}

#[test]
fn kernels_reject_chunks_that_processor_rejects() {
    let Some(kernels) = Kernels::new() else { return };
    let mut random = StdRng::seed_from_u64(9);
    let (mut refused, mut taken) = (0, 0);
    for at in 0..600 {
        let plain = chunk(&mut random, 1 + at % 7);
        let codec = if at.is_multiple_of(2) { Codec::Words } else { Codec::Lz4 };
        let mut chunk = on_processor(|from, to| pack(codec, from, to), &plain).expect("a plain chunk");
        // A single wrong byte is often undetectable in packed data: so several changes, cuts, and other lengths and
        // forms.
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..chunk.len());
            chunk[at] = random.random();
        }
        match at % 5 {
            0 => chunk.truncate(random.random_range(0..=chunk.len())),
            1 => chunk[35] = random.random(),
            2 => chunk[4] = random.random_range(0..5),
            3 if chunk[4] == Form::Words as u8 && chunk.len() > HEADER_LEN + 8 => {
                chunk[HEADER_LEN + 4] = random.random()
            }
            _ => {}
        }
        let right = on_processor(unpack, &chunk);
        let got = kernels.run(kernels.unpack, &chunk);
        assert!(got.is_none() || got == right, "chunk {at}: the kernel accepts input that the processor rejects");
        // The kernel may reject valid input: that costs only a second attempt, and is rare.
        (refused, taken) = (refused + usize::from(right.is_none()), taken + usize::from(got.is_some()));
    }
    assert!(refused > 100 && taken > 50, "{refused} refused, {taken} taken");
}
