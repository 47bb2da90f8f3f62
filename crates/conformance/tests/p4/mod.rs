//! The P4 program does what the reference does, as far as a pipeline can: the same frames out, the same registers.
//!
//! Its text is compiled and run by this project's own compiler and interpreter; no P4 toolchain has a part in it.
//! `FRAMES=n` plays so many random frames.

mod headers;
mod mistakes;
mod packets;
mod stages;

use std::path::{Path, PathBuf};

use pathcall_conformance::corpus::{Case, Line};
use pathcall_conformance::generate::{CLONES, Options, SIZE};
use pathcall_conformance::p4::Pipeline;
use pathcall_conformance::{Difference, Execution, Hardware, Step, campaign, differ};
use pathcall_function::{Report, Sources, ir};
use pathcall_program::{Profile, Program, Size};

/// Frames that are compared if not told otherwise.
const FRAMES: u64 = 200_000;
/// Memory that the program is compiled for: as much as any file of the corpus asks for.
const MEMORY: Size = Size { rows: 32, lanes: 2048, slots: 32 };

/// The folder of the program's text.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4")
}

/// Compiles the program in a folder, for little memory, with these names defined besides.
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
    pathcall_function::compile(&mut sources, (name, text)).map_err(|wrong| Report(&wrong, &sources).to_string())
}

fn program() -> ir::Program {
    compiled(&folder(), &[]).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn pipeline(program: &ir::Program, size: Size, inlined: bool) -> Hardware<Pipeline> {
    let pipeline = Pipeline::new(program, size, CLONES, inlined).unwrap_or_else(|unfit| panic!("{unfit}"));
    Hardware::new(pipeline)
}

fn reference(size: Size) -> Hardware<Program> {
    Hardware::new(pathcall_conformance::program(size))
}

/// Random frames that a pipeline is made for.
fn options() -> Options {
    Options { hardware: true, ..Options::default() }
}

fn frames() -> u64 {
    std::env::var("FRAMES").map_or(FRAMES, |frames| frames.parse().expect("a number"))
}

/// Files of the corpus without tokens.
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

/// What happens in a file.
fn steps(case: &Case) -> Vec<Step> {
    let step = |line: &Line| match line {
        Line::Step { step, .. } => Some(step.clone()),
        _ => None,
    };
    case.lines.iter().filter_map(step).collect()
}

fn agree(found: Result<u64, Box<Difference>>) -> u64 {
    found.unwrap_or_else(|difference| panic!("{difference}"))
}

#[test]
fn random_frames_make_no_difference() {
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&program(), SIZE, false));
    assert!(agree(campaign(&mut theirs, &mut ours, 1, frames(), options())) >= frames());
    let (played, left_out) = ours.frames();
    println!("{played} frames, {left_out} beyond the profile were left out");
    assert!(left_out * 10 < played, "{left_out} of {played} frames are beyond the profile");
}

#[test]
fn nor_where_frames_pass_by_on_their_way_to_their_endpoints() {
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&program(), SIZE, true));
    agree(campaign(&mut theirs, &mut ours, 100, frames() / 4, options()));
}

#[test]
fn nor_with_the_flip_bit_alone() {
    let flipping = compiled(&folder(), &["PC_FLIP_BIT"]).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut theirs = Hardware::new(Program::with_clones(SIZE, CLONES, Profile::FlipBit));
    agree(campaign(&mut theirs, &mut pipeline(&flipping, SIZE, false), 200, frames() / 4, options()));
    // The comparison tells them apart.
    let found = campaign(&mut reference(SIZE), &mut pipeline(&flipping, SIZE, false), 1, frames(), options());
    assert!(found.is_err(), "late repeats are met");
}

#[test]
fn the_corpus_is_done_as_the_reference_does_it() {
    let program = program();
    let mut whole = Vec::new();
    for (name, case) in corpus() {
        let (mut theirs, mut ours) = (reference(case.memory), pipeline(&program, case.memory, false));
        differ(&mut theirs, &mut ours, &steps(&case)).unwrap_or_else(|found| panic!("{name}: {found}"));
        // Where nothing of it is beyond a pipeline, as the file says.
        let takes = |line: &Line| match line {
            Line::Step { step: step @ Step::Install(_), effect } => {
                let mut probe = reference(case.memory);
                let got = step.apply(pathcall_wire::Instant(1), &mut probe).expect("the reference has no failures");
                got.agrees(effect) || *effect != pathcall_conformance::Effect::Changed
            }
            _ => true,
        };
        if theirs.frames().1 == 0 && case.lines.iter().all(takes) {
            let mut ours = pipeline(&program, case.memory, false);
            case.replay(&mut ours).unwrap_or_else(|mismatch| panic!("{name}: {mismatch}"));
            whole.push(name);
        }
    }
    println!("whole files: {whole:?}");
    assert!(whole.len() >= 6, "{whole:?}");
}

#[test]
fn what_is_beyond_a_pipeline_is_refused_or_goes_to_its_processor() {
    let mut ours = Pipeline::new(&program(), SIZE, CLONES, false).unwrap_or_else(|unfit| panic!("{unfit}"));
    let wide =
        pathcall_program::Application { gaid: 1, epoch: 1, owner: 10, row_base: 0, rows: 1, lane_base: 0, width: 256 };
    assert!(matches!(ours.install(wide), Err(pathcall_conformance::Failure::Refused(_))), "rows of 256 lanes");
}

#[test]
fn what_is_written_of_it_in_p4_is_the_same_program() {
    let text = pathcall_function::emit::p4::emit(&program()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut sources = Sources::new(Vec::new());
    let again = pathcall_function::compile(&mut sources, ("switch.p4", text.as_str()));
    let again = again.unwrap_or_else(|wrong| panic!("{}", Report(&wrong, &sources)));
    let (mut theirs, mut ours) = (reference(SIZE), pipeline(&again, SIZE, false));
    agree(campaign(&mut theirs, &mut ours, 300, frames() / 4, options()));
}
