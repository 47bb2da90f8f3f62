//! Tests of the P4 program against the reference, within the hardware profile: same output frames, same registers.
//!
//! The text is compiled and run by this project's own compiler and interpreter, without a P4 toolchain. `FRAMES=n` sets
//! the number of random frames.

mod dependencies;
mod headers;
mod packets;
mod planted_mistakes;
mod profiles;
mod stages;

use std::path::{Path, PathBuf};

use pathcall_conformance::corpus::{Case, CorpusLine};
use pathcall_conformance::generate::{CLONES, GeneratorOptions, SIZE};
use pathcall_conformance::p4::Pipeline;
use pathcall_conformance::{Difference, HardwareExecution, ProgramExecution, ProgramStep, campaign, differ};
use pathcall_p4::{DiagnosticReport, Sources, ir};
use pathcall_program::pipeline::PipelineProfile;
use pathcall_program::{RepeatFilterProfile, Size, SwitchProgram};

/// Default number of random frames.
const FRAMES: u64 = 200_000;
/// Memory of the compiled program: enough for all files of the corpus.
const MEMORY: Size = Size { rows: 32, lanes: 2048, slots: 32 };

/// Directory of the program's text.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4")
}

/// Compiles the program in a directory, with little memory and these additional macros.
fn compiled(folder: &Path, defined: &[&str]) -> Result<ir::Program, String> {
    let sizes = [
        ("PC_ROWS", MEMORY.rows),
        ("PC_SLOTS", MEMORY.slots),
        ("PC_POOLS", CLONES.pools),
        ("PC_REQUESTS", CLONES.requests),
        ("PC_FILTERS", CLONES.filters),
        ("PC_FINGERPRINTS", CLONES.slots),
    ];
    let sizes = sizes.iter().map(|(name, value)| format!("#define {name} {value}\n"));
    let defined = defined.iter().map(|name| format!("#define {name}\n"));
    let text = sizes.chain(defined).collect::<String>() + "#include \"switch.p4\"\n";
    let (name, mut sources) = (folder.join("sized.p4").to_string_lossy().into_owned(), Sources::new(Vec::new()));
    pathcall_p4::compile(&mut sources, (name, text)).map_err(|wrong| DiagnosticReport(&wrong, &sources).to_string())
}

fn program() -> ir::Program {
    compiled(&folder(), &[]).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn pipeline(program: &ir::Program, size: Size, inlined: bool) -> HardwareExecution<Pipeline> {
    pipeline_of(PipelineProfile::Whole, program, size, inlined)
}

fn pipeline_of(
    profile: PipelineProfile,
    program: &ir::Program,
    size: Size,
    inlined: bool,
) -> HardwareExecution<Pipeline> {
    let pipeline = Pipeline::new(program, profile, size, CLONES, inlined).unwrap_or_else(|unfit| panic!("{unfit}"));
    HardwareExecution::new(pipeline, profile)
}

fn reference(size: Size) -> HardwareExecution<SwitchProgram> {
    reference_of(PipelineProfile::Whole, size)
}

fn reference_of(profile: PipelineProfile, size: Size) -> HardwareExecution<SwitchProgram> {
    HardwareExecution::new(pathcall_conformance::program(size), profile)
}

/// Options for random frames within the hardware profile.
fn options() -> GeneratorOptions {
    GeneratorOptions { hardware: true, ..GeneratorOptions::default() }
}

fn frames() -> u64 {
    std::env::var("FRAMES").map_or(FRAMES, |frames| frames.parse().expect("a number"))
}

/// Corpus files without tokens.
fn corpus() -> Vec<(String, Case)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut cases = Vec::new();
    for entry in folder.read_dir().expect("the corpus") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a file");
            let case = Case::from_text(&text).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            cases.push((name, case));
        }
    }
    cases.retain(|(_, case)| !case.has_tokens());
    cases.sort_by(|(a, _), (b, _)| a.cmp(b));
    cases
}

/// Steps of a corpus file.
fn steps(case: &Case) -> Vec<ProgramStep> {
    let step = |line: &CorpusLine| match line {
        CorpusLine::Step { step, .. } => Some(step.clone()),
        _ => None,
    };
    case.lines.iter().filter_map(step).collect()
}

fn agree(found: Result<u64, Box<Difference>>) -> u64 {
    found.unwrap_or_else(|difference| panic!("{difference}"))
}

#[test]
fn pipeline_matches_reference_on_random_frames() {
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&program(), SIZE, false));
    assert!(agree(campaign(&mut theirs, &mut ours, 1, frames(), options())) >= frames());
    let (played, left_out) = ours.frames();
    println!("{played} frames, {left_out} beyond the profile were left out");
    assert!(left_out * 8 < played, "{left_out} of {played} frames are beyond the profile");
}

#[test]
fn inline_pipeline_matches_reference_on_random_frames() {
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&program(), SIZE, true));
    agree(campaign(&mut theirs, &mut ours, 100, frames() / 4, options()));
}

#[test]
fn flip_bit_pipeline_matches_reference_on_random_frames() {
    let flipping = compiled(&folder(), &["PC_FLIP_BIT"]).unwrap_or_else(|wrong| panic!("{wrong}"));
    let flips = SwitchProgram::with_clones(SIZE, CLONES, RepeatFilterProfile::FlipBit);
    let mut theirs = HardwareExecution::new(flips, PipelineProfile::Whole);
    agree(campaign(&mut theirs, &mut pipeline(&flipping, SIZE, false), 200, frames() / 4, options()));
    // The comparison notices the missing sequence numbers.
    let found = campaign(&mut reference(SIZE), &mut pipeline(&flipping, SIZE, false), 1, frames(), options());
    assert!(found.is_err(), "late repeats occur");
}

#[test]
fn pipeline_matches_reference_on_corpus() {
    let whole = replay_corpus(PipelineProfile::Whole, &program());
    assert!(whole.len() >= 6, "{whole:?}");
}

/// Replays the corpus; returns the names of the files that are within the profile as a whole.
fn replay_corpus(profile: PipelineProfile, program: &ir::Program) -> Vec<String> {
    let reference = |size| reference_of(profile, size);
    let pipeline = |size| pipeline_of(profile, program, size, false);
    let mut whole = Vec::new();
    for (name, case) in corpus() {
        let (mut theirs, mut ours) = (reference(case.memory), pipeline(case.memory));
        differ(&mut theirs, &mut ours, &steps(&case)).unwrap_or_else(|found| panic!("{name}: {found}"));
        // Only files without steps beyond the profile are replayed with their effects.
        let takes = |line: &CorpusLine| match line {
            CorpusLine::Step { step: step @ (ProgramStep::Install(_) | ProgramStep::InstallPool(_)), effect } => {
                let mut probe = reference(case.memory);
                let got = step.apply(pathcall_wire::Instant(1), &mut probe).expect("the reference has no failures");
                got.agrees(effect) || *effect != pathcall_conformance::StepEffect::Changed
            }
            _ => true,
        };
        if theirs.frames().1 == 0 && case.lines.iter().all(takes) {
            let mut ours = pipeline(case.memory);
            case.replay(&mut ours).unwrap_or_else(|mismatch| panic!("{name}: {mismatch}"));
            whole.push(name);
        }
    }
    println!("{}: whole files: {whole:?}", profile.name());
    whole
}

#[test]
fn pipeline_refuses_application_beyond_profile() {
    let mut ours = Pipeline::new(&program(), PipelineProfile::Whole, SIZE, CLONES, false)
        .unwrap_or_else(|unfit| panic!("{unfit}"));
    let wide = pathcall_program::InstalledApplication {
        gaid: 1,
        epoch: 1,
        owner: 10,
        row_base: 0,
        rows: 1,
        lane_base: 0,
        width: 256,
    };
    assert!(matches!(ours.install(wide), Err(pathcall_conformance::ExecutionFailure::Refused(_))), "rows of 256 lanes");
}

#[test]
fn p4_program_emitted_again_matches_reference() {
    let text = pathcall_p4::emit::p4::emit(&program()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut sources = Sources::new(Vec::new());
    let again = pathcall_p4::compile(&mut sources, ("switch.p4", text.as_str()));
    let again = again.unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&again, SIZE, false));
    agree(campaign(&mut theirs, &mut ours, 300, frames() / 4, options()));
}
