//! Mutation tests of the kernel's program: the comparison with the reference finds each planted mistake, and finds none
//! in the same build without a mistake.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure.

use crate::common::{Tested, config, loaded};
use crate::mistakes::Mistake;
use pathcall_conformance::campaign;
use pathcall_conformance::generate::{GeneratorOptions, SIZE};
use pathcall_xdp::KernelSwitch;

/// Most frames until a mistake has to be found.
const FRAMES: u64 = 200_000;

#[test]
fn every_planted_kernel_mistake_is_found() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for first in 0..processors {
            scope.spawn(move || Mistake::ALL.iter().skip(first).step_by(processors).for_each(find));
        }
    });
}

/// Panics unless the mistake is found.
fn find(&(file, mistake): &(&str, Mistake)) {
    let Some(kernel) = loaded(KernelSwitch::load_planted(mistake as u32, &config(SIZE))) else { return };
    let planted = &mut Tested::of(kernel, SIZE);
    let found = campaign(&mut pathcall_conformance::program(SIZE), planted, 1, FRAMES, GeneratorOptions::default());
    let found = found.expect_err(&format!("{file}: {mistake:?} is not found"));
    println!("{file}: {mistake:?}: seed {:?}, {} steps", found.seed, found.steps.len());
    assert!(found.steps.len() <= 30, "{mistake:?}: {found}");
}

#[test]
fn unmodified_program_has_no_differences() {
    let Some(kernel) = loaded(KernelSwitch::load_planted(Mistake::None as u32, &config(SIZE))) else { return };
    let found = campaign(
        &mut pathcall_conformance::program(SIZE),
        &mut Tested::of(kernel, SIZE),
        1,
        FRAMES / 4,
        GeneratorOptions::default(),
    );
    found.unwrap_or_else(|difference| panic!("{difference}"));
}
