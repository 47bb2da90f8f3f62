//! Software path of the switch: reads the record of a slot's places, 64 registers of each array, and answers frames
//! that a pipeline cannot process.

use pathcall_p4::interp::Interpreter;
use pathcall_program::AdmissionTables;
use pathcall_wire::{FrameKind, KEYED_WIDTH, MapFrame, RECORD_PLACES, W_MAX};

use super::memory::ProgramRegisters;

/// Turns a `MapPlaces` that the pipeline admitted into its answer; false if its fields contradict the application's
/// layout (crates/program, keyed.rs).
pub(super) fn answer(
    installed: &AdmissionTables,
    memory: &ProgramRegisters,
    machine: &Interpreter,
    bytes: &mut [u8],
) -> bool {
    let Ok(mut frame) = MapFrame::new_checked(bytes) else { return false };
    let (base, map) = (frame.base().repr(), frame.map().repr());
    let keyed = |(a, _, _): (pathcall_program::InstalledApplication, _, _)| {
        a.gaid == base.gaid && a.width as usize == KEYED_WIDTH && a.rows > 0
    };
    let owner = installed.endpoint(map.threshold).filter(|endpoint| endpoint.gaid == base.gaid);
    let has = owner.is_some_and(|owner| map.index.wrapping_sub(owner.slot_base) < owner.slots);
    let first = usize::from(map.first_lane);
    let fits = frame.kind() == FrameKind::MapPlaces
        && installed.applications().any(keyed)
        && has
        && first.is_multiple_of(RECORD_PLACES)
        && first < W_MAX as usize
        && frame.lanes().len() == RECORD_PLACES * 12;
    if !fits {
        return false;
    }
    let places = memory.slot(machine, map.index);
    let words = frame.bitmap_and_lanes_mut().1.as_chunks_mut().0;
    for (at, place) in places[first..first + RECORD_PLACES].iter().enumerate() {
        words[at] = place.seq.to_be_bytes();
        words[at + RECORD_PLACES] = place.generation.to_be_bytes();
        words[at + 2 * RECORD_PLACES] = place.overflow.to_be_bytes();
    }
    let mut out = frame.base_mut();
    out.set_kind(FrameKind::MapRecord as u8);
    out.set_dst(base.src);
    out.set_dst_incarnation(base.src_incarnation);
    out.set_src(base.dst);
    out.set_src_incarnation(base.dst_incarnation);
    true
}
