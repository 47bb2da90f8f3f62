//! Frames through the switch program: the input is a sequence of frames, each after its length.
//! Identity fields are made right, so that the fuzzer gets past admission.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pathcall_program::{Application, Endpoint, Program, Size};
use pathcall_wire::base::{MAGIC, VERSION};
use pathcall_wire::{BaseRepr, Instant};

fuzz_target!(|data: &[u8]| {
    let mut program = Program::new(Size { rows: 8, lanes: 512, slots: 4 });
    let tables = program.tables_mut();
    let memory = Application { gaid: 1, epoch: 1, owner: 1, row_base: 2, rows: 4, lane_base: 32, width: 64 };
    tables.install(memory).expect("fits");
    for (endpoint, slot_base, slots) in [(1, 0, 0), (2, 0, 2), (3, 2, 2)] {
        tables.set_endpoint(Endpoint { endpoint, incarnation: 1, gaid: 1, slot_base, slots }).expect("fits");
    }
    tables.set_group(1, &[2, 3]).expect("known");
    let mut rest = data;
    while let Some((len, after)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(after.len());
        let (frame, after) = after.split_at(len);
        rest = after;
        let mut frame = frame.to_vec();
        if let Ok(length) = u16::try_from(frame.len())
            && let Some(head) = frame.first_chunk_mut::<44>()
        {
            let byte = |at: usize| u32::from(head[at]);
            let repr = BaseRepr {
                magic: MAGIC,
                version: VERSION,
                kind: head[3],
                flags: u16::from_be_bytes([head[4], head[5]]),
                length,
                gaid: 1,
                epoch: 1,
                src: 1 + byte(19) % 3,
                src_incarnation: 1,
                dst: 1 + byte(27) % 3,
                dst_incarnation: 1,
                slot: byte(35) % 5,
                seq: byte(39),
                round: byte(43),
            };
            repr.emit(head);
        }
        let verdict = program.process(Instant(1), &mut frame, head_bit(data));
        assert!(verdict.len <= frame.len());
    }
});

fn head_bit(data: &[u8]) -> bool {
    data.first().is_some_and(|byte| byte & 1 == 1)
}
