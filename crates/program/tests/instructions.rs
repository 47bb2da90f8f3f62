//! Instruction counts of call frames, measured by valgrind, compared with a frame that is only forwarded.
//!
//! The test runs itself under callgrind, twice for each kind of frame; the difference is the cost of the additional
//! frames. It needs a release build (`cargo test --release -p pathcall-program --test main instructions`) and valgrind;
//! without them it prints a message and passes.

use std::env;
use std::hint::black_box;
use std::process::Command;

use pathcall_program::{Endpoint, FrameAction, InstalledApplication, InstalledPool, Size, SwitchProgram};
use pathcall_wire::clone::{ORIGINAL, emit};
use pathcall_wire::map::frame_len;
use pathcall_wire::{
    BaseRepr, CloneFlags, CloneHeader, CloneRepr, Flags, FrameKind, Instant, MAX_FRAME, MapHeader, MapRepr,
};

/// Application 1 is of *map*, 2 is a pool; each has a caller, and servers.
const CALLERS: [u32; 2] = [11, 21];
const SERVERS: [u32; 2] = [1, 2];
/// Payload of a call, bytes.
const MESSAGE: usize = 128;
/// Largest cost of a call frame, as a multiple of forwarding.
const CALL_MAX: f64 = 1.25;
/// Frames of the shorter run, and additional frames of the longer run.
const FEW: u64 = 1_000;
const MORE: u64 = 10_000;

#[test]
fn calls_cost_at_most_a_quarter_more_than_forwarding() {
    if cfg!(debug_assertions) {
        return println!("skipped: not a release build");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(env::var_os("PATHCALL_ROOT_TESTS").is_none(), "valgrind is missing");
        return println!("skipped: valgrind is missing");
    }
    let per_frame = |kind| (instructions(kind, FEW + MORE) - instructions(kind, FEW)) as f64 / MORE as f64;
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

/// Frames of a kind: `crossing` (a map frame that is only forwarded), `steered`, `cloned` (with its second pass),
/// `answered` (the faster and the slower answer of a call, alternating).
#[test]
#[ignore = "run by the other test, under valgrind"]
fn frames() {
    let setting = |name| env::var(name).expect("set by the other test");
    let (kind, count) = (setting("KIND"), setting("COUNT").parse::<u64>().expect("a number"));
    let mut program = program();
    let request = || call(&base(FrameKind::CloneRequest, 2, CALLERS[1], 0, 0), CloneRepr::default());
    let mut frames = match &kind[..] {
        "crossing" => vec![crossing()],
        "steered" | "cloned" => vec![request()],
        _ => vec![answer(FrameKind::CloneReply, 0, 0), answer(FrameKind::CloneReply, 1, 0)],
    };
    if kind == "steered" {
        let busy = program.process(Instant(1), &mut answer(FrameKind::CloneWorking, 1, 1), false);
        assert!(matches!(busy.action, FrameAction::Forward(_)));
    }
    let mut left = 0;
    for n in 0..count {
        let at = n as usize % frames.len();
        let frame = black_box(&mut frames[at]);
        match program.process(Instant(n), frame, false).action {
            FrameAction::Clone(_) => {
                assert!(matches!(program.recirculate(frame).action, FrameAction::Forward(_)));
                left += 2;
            }
            FrameAction::Forward(_) => left += 1,
            FrameAction::Multicast(_) | FrameAction::Drop(_) => {}
        }
    }
    let expected = match &kind[..] {
        "cloned" => 2 * count,
        "answered" => count / 2,
        _ => count,
    };
    assert_eq!(left, expected);
}
