//! Fuzz target of the switch program. The input is a sequence of frames, each after its length. Identity fields are
//! corrected, so that frames pass admission. The second application requires tokens; the third is a pool of servers for
//! cloned calls.

use pathcall_program::{
    CloneSize, Endpoint, FrameAction, FrameDropReason, InstalledApplication, InstalledPool, RepeatFilterProfile, Size,
    SwitchProgram,
};
use pathcall_wire::base::{MAGIC, VERSION};
use pathcall_wire::{BaseRepr, Instant, MAX_FRAME, MapFrame, TokenKey};

/// Tests one input.
pub fn run(data: &[u8]) {
    let key = TokenKey::new([1, 2]);
    let clones = CloneSize { pools: 1, requests: 4, filters: 2, slots: 4 };
    let size = Size { rows: 16, lanes: 1024, slots: 8 };
    let mut program = SwitchProgram::with_clones(size, clones, RepeatFilterProfile::FullSequence);
    let tables = program.tables_mut();
    let memory = InstalledApplication { gaid: 1, epoch: 1, owner: 1, row_base: 2, rows: 4, lane_base: 32, width: 64 };
    tables.install(memory).expect("fits");
    tables.install(InstalledApplication { gaid: 2, owner: 4, row_base: 8, lane_base: 512, ..memory }).expect("fits");
    tables.authenticate(2, Some(key)).expect("installed");
    for (endpoint, slot_base, slots) in [(1, 0, 0), (2, 0, 2), (3, 2, 2), (4, 0, 0), (5, 4, 2), (6, 6, 2)] {
        let gaid = 1 + (endpoint - 1) / 3;
        tables.set_endpoint(Endpoint { endpoint, incarnation: 1, gaid, slot_base, slots }).expect("fits");
    }
    tables.install_pool(InstalledPool { gaid: 3, version: 1, servers: vec![8, 9] }).expect("fits");
    for endpoint in 7..10 {
        let entry = Endpoint { endpoint, incarnation: 1, gaid: 3, slot_base: 0, slots: 0 };
        tables.set_endpoint(entry).expect("fits");
    }
    tables.set_group(1, &[2, 3]).expect("known");
    tables.set_group(2, &[5, 6]).expect("known");
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
            let application = byte(11) % 3;
            let repr = BaseRepr {
                magic: MAGIC,
                version: VERSION,
                kind: head[3],
                flags: u16::from_be_bytes([head[4], head[5]]),
                length,
                gaid: 1 + application,
                epoch: 1,
                src: 1 + byte(19) % 3 + 3 * application,
                src_incarnation: 1,
                dst: 1 + byte(27) % 3 + 3 * application,
                dst_incarnation: 1,
                slot: byte(35) % 9,
                seq: byte(39),
                round: byte(43),
            };
            repr.emit(head);
        }
        if len % 4 == 1 {
            // Frame of a sender that has the key.
            frame = key.insert_token(&frame, &mut [0; MAX_FRAME]).map_or(frame.clone(), <[u8]>::to_vec);
        }
        let ours = MapFrame::new_checked(&frame[..]).is_ok_and(|frame| frame.base().gaid() == 2);
        let signed = key.has_signed(&frame);
        let verdict = program.process(Instant(1), &mut frame, head_bit(data));
        assert!(verdict.len <= frame.len());
        match verdict.action {
            FrameAction::Drop(reason) => assert!(!ours || signed || reason == FrameDropReason::Unauthentic),
            FrameAction::Forward(_) => assert!(!ours || signed && key.has_signed(&frame[..verdict.len])),
            FrameAction::Clone(_) => {
                assert!(!ours || signed && key.has_signed(&frame[..verdict.len]));
                let again = program.recirculate(&mut frame[..verdict.len]);
                assert!(
                    !matches!(again.action, FrameAction::Forward(_)) || !ours || key.has_signed(&frame[..again.len])
                );
            }
            FrameAction::Multicast(gaid) => program.tables().copies(gaid, &mut frame[..verdict.len], |_, copy| {
                assert!(!ours || signed && key.has_signed(copy));
            }),
        }
    }
}

fn head_bit(data: &[u8]) -> bool {
    data.first().is_some_and(|byte| byte & 1 == 1)
}
