//! Instruction counts of call frames, measured by valgrind, compared with a frame that is only forwarded.
//!
//! The test runs itself under callgrind, twice for each kind of frame; the difference is the cost of the additional
//! frames. It needs a release build (`cargo test --release -p pathcall-program --test main instructions`) and valgrind;
//! without them it prints a message and passes.

use std::env;
use std::hint::black_box;
use std::process::Command;

use pathcall_program::{
    Endpoint, FrameAction, HeldHedgesSize, InstalledApplication, InstalledPool, Size, SwitchProgram,
};
use pathcall_wire::clone::{ORIGINAL, emit};
use pathcall_wire::map::frame_len;
use pathcall_wire::{
    BaseRepr, CloneFlags, CloneFrame, CloneHeader, CloneRepr, Flags, FrameKind, Instant, MAX_FRAME, MapHeader, MapRepr,
};

/// Application 1 is of *map*, 2 is a pool; each has a caller, and servers.
const CALLERS: [u32; 2] = [11, 21];
const SERVERS: [u32; 2] = [1, 2];
/// Payload of a call, bytes.
const MESSAGE: usize = 128;
/// Largest cost of a call frame, as a multiple of forwarding.
const CALL_MAX: f64 = 1.25;
/// Largest cost of a call without a hedge in an element that holds hedges, as a multiple of the cost in one that does not.
const HOLDER_MAX: f64 = 1.02;
/// End of the names of kinds of frames that pass an element which holds hedges.
const HOLDER: &str = " with holder";
/// Frames of the shorter run, and additional frames of the longer run.
const FEW: u64 = 1_000;
const MORE: u64 = 10_000;

#[test]
fn calls_cost_at_most_a_quarter_more_than_forwarding() {
    if is_skipped() {
        return;
    }
    let forwarding = per_frame("crossing");
    // A cloned request leaves as two frames.
    for (kind, leave) in [("steered", 1.0), ("cloned", 2.0), ("answered", 1.0)] {
        let each = per_frame(kind) / leave;
        println!(
            "{kind}: {each:.0} instructions for each frame, {:.2} of forwarding's {forwarding:.0}",
            each / forwarding
        );
        assert!(each <= CALL_MAX * forwarding, "{kind}: {each:.0} instructions, forwarding takes {forwarding:.0}");
    }
}

#[test]
fn holder_of_hedges_costs_other_calls_at_most_two_percent() {
    if is_skipped() {
        return;
    }
    let counted = ["crossing", "steered", "cloned", "answered", "single"].map(|kind| {
        let (alone, with) = (per_frame(kind), per_frame(&format!("{kind}{HOLDER}")));
        println!("{kind}: {alone:.0} instructions for each frame, {with:.0} in an element that holds hedges");
        (kind, alone, with)
    });
    println!("held and answered: {:.0} instructions for each frame", per_frame(&format!("held answered{HOLDER}")));
    for (kind, alone, with) in counted {
        assert!(with <= HOLDER_MAX * alone, "{kind}: {with:.0} instructions, without a holder {alone:.0}");
    }
}

/// Whether instructions cannot be counted here.
fn is_skipped() -> bool {
    if cfg!(debug_assertions) {
        println!("skipped: not a release build");
        return true;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(env::var_os("PATHCALL_ROOT_TESTS").is_none(), "valgrind is missing");
        println!("skipped: valgrind is missing");
        return true;
    }
    false
}

/// Instructions of each frame.
fn per_frame(kind: &str) -> f64 {
    (instructions(kind, FEW + MORE) - instructions(kind, FEW)) as f64 / MORE as f64
}

/// Instructions of a run of this test's frames.
fn instructions(kind: &str, count: u64) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(env::current_exe().expect("this test"));
    command
        .args(["--exact", "instructions::frames", "--ignored", "--nocapture"])
        .env("KIND", kind)
        .env("COUNT", count.to_string());
    let output = command.output().expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected : ").nth(1)).and_then(|n| n.trim().parse().ok());
    collected.filter(|_| output.status.success()).unwrap_or_else(|| panic!("{kind}: {text}"))
}

fn program() -> SwitchProgram {
    let mut program = SwitchProgram::new(Size::default());
    let tables = program.tables_mut();
    let memory = InstalledApplication { gaid: 1, epoch: 1, owner: 9, row_base: 0, rows: 1, lane_base: 0, width: 64 };
    tables.install(memory).expect("there is room");
    tables.install_pool(InstalledPool { gaid: 2, version: 1, servers: SERVERS.to_vec() }).expect("there is room");
    for (endpoint, gaid) in [(9, 1), (CALLERS[0], 1), (CALLERS[1], 2), (SERVERS[0], 2), (SERVERS[1], 2)] {
        let entry = Endpoint { endpoint, incarnation: 1, gaid, slot_base: 0, slots: 0 };
        tables.set_endpoint(entry).expect("there is room");
    }
    program
}

fn base(kind: FrameKind, gaid: u32, src: u32, dst: u32, flags: u16) -> BaseRepr {
    BaseRepr { gaid, epoch: 1, src, src_incarnation: 1, dst, flags, ..BaseRepr::new(kind) }
}

fn crossing() -> Vec<u8> {
    let payload_len = CloneHeader::LEN - MapHeader::LEN + MESSAGE;
    let mut bytes = vec![0; frame_len(0, 0, payload_len)];
    let map = MapRepr { payload_len: payload_len as u16, ..MapRepr::default() };
    pathcall_wire::map::emit(&base(FrameKind::MapSilent, 1, CALLERS[0], 9, Flags::CROSS), &map, &mut bytes);
    bytes
}

fn call(base: &BaseRepr, head: CloneRepr) -> Vec<u8> {
    let mut bytes = vec![0; MAX_FRAME];
    let head = CloneRepr { flags: CloneFlags::CLONE | CloneFlags::SHORTEST, parts: 1, ..head };
    let len = emit(base, &head, &[0x5a; MESSAGE], &mut bytes);
    bytes.truncate(len);
    bytes
}

fn answer(kind: FrameKind, sid: u16, state: u16) -> Vec<u8> {
    let base = base(kind, 2, SERVERS[usize::from(sid)], CALLERS[1], Flags::FROM_SERVER);
    call(&base, CloneRepr { req_id: 1, clo: ORIGINAL, sid, state, ..CloneRepr::default() })
}

/// Only answer of a call.
fn single() -> Vec<u8> {
    let base = base(FrameKind::CloneReply, 2, SERVERS[0], CALLERS[1], Flags::FROM_SERVER);
    call(&BaseRepr { dst_incarnation: 1, ..base }, CloneRepr { req_id: 1, ..CloneRepr::default() })
}

/// Request of which the element may hold a copy for a minute.
fn hedged() -> Vec<u8> {
    let base = BaseRepr { round: 60_000_000, ..base(FrameKind::CloneRequest, 2, CALLERS[1], 0, 0) };
    let mut bytes = call(&base, CloneRepr::default());
    CloneFrame::new_checked(&mut bytes[..]).expect("a frame").head_mut().set_flags(CloneFlags::SHORTEST);
    bytes
}

/// Makes a frame that of another call. An answer is marked as the element marks the request.
fn number(frame: &mut [u8], seq: u32) {
    let mut frame = CloneFrame::new_checked(frame).expect("a frame");
    let answers = frame.kind() == FrameKind::CloneReply;
    frame.base_mut().set_seq(seq);
    let mut head = frame.head_mut();
    head.set_clo(if answers { ORIGINAL } else { 0 });
    head.set_flags(CloneFlags::SHORTEST);
    head.set_req_id(if answers { seq.into() } else { 0 });
    head.set_switch_id(u16::from(answers));
}

/// Frames of a kind: `crossing` (a map frame that is only forwarded), `steered`, `cloned` (with its second pass),
/// `answered` (the faster and the slower answer of a call, alternating), `single` (the only answer of a call), `held answered`
/// (a request of which a copy is held and its answer, alternating); `… with holder`: in an element that holds hedges.
#[test]
#[ignore = "run by the other test, under valgrind"]
fn frames() {
    let setting = |name| env::var(name).expect("set by the other test");
    let (kind, count) = (setting("KIND"), setting("COUNT").parse::<u64>().expect("a number"));
    let mut program = program();
    if kind.ends_with(HOLDER) {
        program.hold_hedges(HeldHedgesSize::default());
    }
    let kind = kind.trim_end_matches(HOLDER);
    let request = || call(&base(FrameKind::CloneRequest, 2, CALLERS[1], 0, 0), CloneRepr::default());
    let mut frames = match kind {
        "crossing" => vec![crossing()],
        "steered" | "cloned" => vec![request()],
        "single" => vec![single()],
        "held answered" => vec![hedged(), single()],
        _ => vec![answer(FrameKind::CloneReply, 0, 0), answer(FrameKind::CloneReply, 1, 0)],
    };
    if kind == "steered" {
        let busy = program.process(Instant(1), &mut answer(FrameKind::CloneWorking, 1, 1), false);
        assert!(matches!(busy.action, FrameAction::Forward(_)));
    }
    let numbered = kind == "held answered";
    let mut left = 0;
    for n in 0..count {
        let at = n as usize % frames.len();
        let frame = black_box(&mut frames[at]);
        if numbered {
            number(frame, n as u32 / 2 + 1);
        }
        match program.process(Instant(n), frame, false).action {
            FrameAction::Clone(_) => {
                assert!(matches!(program.recirculate(frame).action, FrameAction::Forward(_)));
                left += 2;
            }
            FrameAction::Forward(_) => left += 1,
            FrameAction::Multicast(_) | FrameAction::Drop(_) => {}
        }
    }
    let expected = match kind {
        "cloned" => 2 * count,
        "answered" => count / 2,
        _ => count,
    };
    assert_eq!(left, expected);
}
