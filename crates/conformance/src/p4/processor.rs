//! What a switch's own processor does with frames that a pipeline can't work on: it reads the record of a slot's
//! places, 64 registers of each array, and answers in the pipeline's place.

use pathcall_function::interp::Interpreter;
use pathcall_program::Tables;
use pathcall_wire::{KEYED_WIDTH, Kind, MapFrame, RECORD_PLACES, W_MAX};

use super::memory::Memory;

/// Turns a `MapPlaces` that the pipeline has admitted into its answer; false: its fields contradict its application's
/// layout (crates/program, keyed.rs).
pub(super) fn answer(books: &Tables, memory: &Memory, machine: &Interpreter, bytes: &mut [u8]) -> bool {
    let Ok(mut frame) = MapFrame::new_checked(bytes) else { return false };
    let (base, map) = (frame.base().repr(), frame.map().repr());
    let keyed = |(a, _, _): (pathcall_program::Application, _, _)| {
        a.gaid == base.gaid && a.width as usize == KEYED_WIDTH && a.rows > 0
    };
    let owner = books.endpoint(map.threshold).filter(|endpoint| endpoint.gaid == base.gaid);
    let has = owner.is_some_and(|owner| map.index.wrapping_sub(owner.slot_base) < owner.slots);
    let first = usize::from(map.first_lane);
    let fits = frame.kind() == Kind::MapPlaces
        && books.applications().any(keyed)
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
    out.set_kind(Kind::MapRecord as u8);
    out.set_dst(base.src);
    out.set_dst_incarnation(base.src_incarnation);
    out.set_src(base.dst);
    out.set_src_incarnation(base.dst_incarnation);
    true
}
