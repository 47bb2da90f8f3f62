//! Tests of the profiles that fit a pipeline: each is the same text, and within its part equal to the reference.

use pathcall_conformance::ExecutionFailure;
use pathcall_conformance::generate::SIZE;
use pathcall_conformance::{ProgramExecution, campaign};
use pathcall_p4::ir;
use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::{InstalledApplication, InstalledPool};

use super::{agree, compiled, folder, frames, options, pipeline_of, reference_of, replay_corpus};

/// Profiles that leave something out, each with macros beside its own: the reference has the product as hash.
const PROFILES: [(PipelineProfile, &[&str]); 2] =
    [(PipelineProfile::Map, &[]), (PipelineProfile::Clone, &["PC_SLOT_BY_PRODUCT"])];

/// The program of a profile, compiled with little memory.
pub(super) fn program(profile: PipelineProfile, others: &[&str]) -> ir::Program {
    let defined = [profile.macros(), others].concat();
    compiled(&folder(), &defined).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn profiles_match_reference_on_random_frames() {
    for (profile, others) in PROFILES {
        let program = program(profile, others);
        for inlined in [false, true] {
            let (mut theirs, mut ours) = (reference_of(profile, SIZE), pipeline_of(profile, &program, SIZE, inlined));
            agree(campaign(&mut theirs, &mut ours, 400, frames() / 4, options()));
            let (played, left_out) = ours.frames();
            println!("{}: {played} frames, {left_out} beyond the profile were left out", profile.name());
            assert!(played * 5 > left_out, "{}: {left_out} of {played} frames are left out", profile.name());
        }
    }
}

#[test]
fn profiles_match_reference_on_corpus() {
    for ((profile, others), least) in PROFILES.into_iter().zip([4, 1]) {
        let whole = replay_corpus(profile, &program(profile, others));
        assert!(whole.len() >= least, "{}: {whole:?}", profile.name());
    }
}

#[test]
fn profile_refuses_other_ability() {
    let keyed = InstalledApplication { gaid: 1, epoch: 1, owner: 10, row_base: 0, rows: 1, lane_base: 0, width: 64 };
    let pool = InstalledPool { gaid: 2, version: 1, servers: Vec::new() };
    for (profile, others) in PROFILES {
        let mut ours = pipeline_of(profile, &program(profile, others), SIZE, false);
        let refused = |result| matches!(result, Err(ExecutionFailure::Refused(_)));
        assert_eq!(refused(ours.install(keyed)), !profile.has_map(), "{}", profile.name());
        assert_eq!(refused(ours.install_pool(&pool)), !profile.has_calls(), "{}", profile.name());
    }
}
