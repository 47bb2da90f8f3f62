//! Each mistake that can be planted in the kernel's program is found by the comparison with the
//! reference, and the same build without one is not.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure.

use crate::common::{Tested, config, loaded};
use crate::mistakes::Mistake;
use pathcall_conformance::campaign;
use pathcall_conformance::generate::{Options, SIZE};
use pathcall_xdp::Kernel;

/// Frames until a mistake must have been found.
const FRAMES: u64 = 200_000;

#[test]
fn every_mistake_in_the_kernel_is_found() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..processors {
            scope.spawn(move || Mistake::ALL.iter().skip(first).step_by(processors).for_each(find));
        }
    });
}

/// Panics unless the mistake is found.
fn find(&(file, mistake): &(&str, Mistake)) {
    let Some(kernel) = loaded(Kernel::load_planted(mistake as u32, &config(SIZE))) else { return };
    let planted = &mut Tested::of(kernel, SIZE);
    let found = campaign(&mut pathcall_conformance::program(SIZE), planted, 1, FRAMES, Options::default());
    let found = found.expect_err(&format!("{file}: {mistake:?} is not found"));
    println!("{file}: {mistake:?}: seed {:?}, {} steps", found.seed, found.steps.len());
    assert!(found.steps.len() <= 30, "{mistake:?}: {found}");
}

#[test]
fn without_a_mistake_there_is_nothing_to_find() {
    let Some(kernel) = loaded(Kernel::load_planted(Mistake::None as u32, &config(SIZE))) else { return };
    let found = campaign(
        &mut pathcall_conformance::program(SIZE),
        &mut Tested::of(kernel, SIZE),
        1,
        FRAMES,
        Options::default(),
    );
    found.unwrap_or_else(|difference| panic!("{difference}"));
}
