//! Tests that mistakes planted in the P4 text are found by the comparison with the reference; each stage has at least
//! one.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use pathcall_conformance::campaign;
use pathcall_conformance::generate::SIZE;
use pathcall_program::pipeline::PipelineProfile;

use super::{compiled, folder, options, pipeline_of, reference_of};

/// Number of frames within which a mistake must be found.
const FRAMES: u64 = 200_000;

/// Directory with a patched copy of the program's text, removed on drop.
pub struct Patched(PathBuf);

impl Patched {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Patched {
    fn drop(&mut self) {
        // A leftover directory is within the build directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Copy with `to` in place of `from`, which must occur once in this file.
pub fn patched(file: &str, from: &str, to: &str) -> Patched {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("p4-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let patched = Patched(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    std::fs::create_dir_all(patched.path()).expect("a folder of ours");
    for entry in folder().read_dir().expect("the program") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.ends_with(".p4") {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).expect("a file");
        if name == file {
            assert_eq!(text.matches(from).count(), 1, "{file}: {from:?} occurs once");
            text = text.replace(from, to);
        }
        std::fs::write(patched.path().join(name), text).expect("a file of ours");
    }
    patched
}

/// File, original text and replacement.
const MISTAKES: &[(&str, &str, &str)] = &[
    // Checks.
    ("check.p4", "&& hdr.call.part < hdr.call.parts", ""),
    ("check.p4", "(lanes + 31) >> 5 << 2", "(lanes + 32) >> 5 << 2"),
    ("check.p4", "& ~PC_MAP_ELEMENT_ONLY", ""),
    ("check.p4", "& ~PC_FLAG_NOT_ADMITTED", ""),
    ("check.p4", "hdr.map.op < PC_OPS && ", ""),
    // Admission.
    ("admit.p4", "|| md.epoch != hdr.base.epoch", ""),
    ("admit.p4", "from_server != (hdr.base.src == md.owner)", "false"),
    ("admit.p4", "hdr.base.slot - md.slot_base >= md.slots", "hdr.base.slot - md.slot_base > md.slots"),
    ("admit.p4", "md.sender_server != (answers ? (bit<32>) hdr.call.sid + 1 : 0)", "false"),
    ("admit.p4", "if ((md.flags & PC_FLAG_TOKEN) == 0) {", "if (true) {"),
    (
        "tables.p4",
        "key = { hdr.base.gaid: exact; hdr.base.src: exact; }",
        "key = { md.index: exact; hdr.base.src: exact; }",
    ),
    // Paths.
    ("way.p4", "&& hdr.map.first_lane == 0", ""),
    ("way.p4", "(hdr.map.tag & ~PC_LOCK_TAG) == 0", "true"),
    ("way.p4", "&& hdr.map.payload_len == hdr.entry.key_len + 10", ""),
    (
        "way.p4",
        "md.way = WAY_WIPE;\n                wrong_unless(is_keyed && in_rows);",
        "md.way = WAY_WIPE;\n                wrong_unless(is_keyed);",
    ),
    // Generations.
    ("generation.p4", "md.open == hdr.base.round + 1", "md.open >= hdr.base.round"),
    ("generation.p4", "md.bank = md.open & 1;", "md.bank = (md.committed + 1) & 1;"),
    ("generation.p4", "versions.write(md.row_base, following ++ hdr.map.index);", ""),
    ("generation.p4", "md.work = WORK_ZERO;", ""),
    // The repeat filter.
    ("repeat_filter.p4", "hdr.base.seq < last", "false"),
    ("repeat_filter.p4", "hdr.base.round == md.version", "true"),
    ("repeat_filter.p4", "generations.read(md.applied_in, md.place);", "md.applied_in = generation;"),
    ("repeat_filter.p4", "hdr.base.seq & 255", "hdr.base.seq & 127"),
    // Rounds.
    ("round.p4", "tag != 0 && tag != hdr.map.tag", "false"),
    ("round.p4", "high.apply(worker[63:32]", "high.apply(worker[31:0]"),
    ("round.p4", "(workers & worker) != 0", "false"),
    ("round.p4", "hdr.base.round >= open", "true"),
    ("round.p4", "md.cleared ? 1w0 : mark", "1w0"),
    ("round.p4", "hdr.base.round |+| 1", "hdr.base.round"),
    ("round.p4", "!md.opens && !md.cleared", "!md.cleared"),
    (
        "round.p4",
        "md.repeat_status == STATUS_NEW && (md.map_flags & PC_MAP_CLEAR) != 0",
        "(md.map_flags & PC_MAP_CLEAR) != 0",
    ),
    // Counts.
    ("count.p4", "count != hdr.map.threshold", "count < hdr.map.threshold"),
    ("count.p4", "md.countless = hdr.map.index >= md.rows;", "md.countless = false;"),
    ("count.p4", "counts.write(md.row, 0);", ""),
    ("count.p4", "if (md.opens) {", "if (false) {"),
    // Ballots.
    ("ballot.p4", "md.ours = false;", ""),
    ("ballot.p4", "key_len > at + 4", "key_len > at"),
    ("ballot.p4", "&& (bit<32>) round == hdr.base.round", ""),
    ("ballot.p4", "round = round + 1;", ""),
    ("ballot.p4", "md.ours && md.repeat_status == STATUS_NEW", "md.ours"),
    ("ballot.p4", "&& decided == 0 && md.decider == DECIDER_ELEMENT", "&& md.decider == DECIDER_ELEMENT"),
    ("ballot.p4", "|| md.decider == DECIDER_SERVER", ""),
    ("ballot.p4", "(md.map_flags & PC_MAP_WAIT) != 0", "false"),
    ("ballot.p4", "decided = 1;\n            }\n            standings", "}\n            standings"),
    ("ballot.p4", "hdr.key_tail3.bytes ++ 8w0", "8w0 ++ hdr.key_tail3.bytes"),
    // Locks.
    ("lock.p4", "tag = tag | PC_LOCK_WANTED;", ""),
    ("lock.p4", "md.grants = exactly ? hdr.base.round : 0;", "md.grants = 0;"),
    ("lock.p4", "tag = hdr.map.tag | PC_LOCK_PARKED;", "tag = hdr.map.tag;"),
    ("lock.p4", "md.outcome = fresh ? LOCK_GRANTED : LOCK_UNHELD;", "md.outcome = LOCK_GRANTED;"),
    // Lanes.
    ("modify.p4", "8w31", "8w30"),
    ("modify.p4", "(int<32>) value > (int<32>) para", "value > para"),
    ("lane.p4", "overflows = beyond;", ""),
    ("lane.p4", "} else if (held != 0x80000000 && held != 0x7fffffff) {", "} else {"),
    ("lane.p4", "(row << PC_CELL_BITS) | md.bank", "row << PC_CELL_BITS"),
    ("lane.p4", "touches = pair.row < md.rows;", "touches = true;"),
    (
        "map.p4",
        "lane_7.apply(hdr.lanes[7], hdr.pairs[7], 32w1 << 7, md);",
        "lane_7.apply(hdr.lanes[7], hdr.pairs[7], 32w1 << 6, md);",
    ),
    (
        "map.p4",
        "lane_31.apply(hdr.lanes[31], hdr.pairs[31], 32w1 << 31, md);",
        "lane_31.apply(hdr.lanes[31], hdr.pairs[30], 32w1 << 31, md);",
    ),
    (
        "map.p4",
        "md.repeat_status == STATUS_NEW && (md.map_flags & PC_MAP_ADD) != 0",
        "(md.map_flags & PC_MAP_ADD) != 0",
    ),
    ("map.p4", "marks.read(md.mark, md.place);", "md.mark = 0;"),
    ("repeat_filter.p4", "md.applied_in = md.open;", ""),
    // Calls.
    ("number.p4", "hdr.call.req_id[62:40] != hdr.base.src[22:0]", "false"),
    ("number.p4", "last >= PC_CALLER_ID - 1", "false"),
    ("group.p4", "md.drawn = current && hdr.call.grp < md.groups;", "md.drawn = hdr.call.grp < md.groups;"),
    (
        "group.p4",
        "hash(md.group, HashAlgorithm.identity, 32w0, { hdr.call.grp }, md.groups);",
        "md.group = hdr.call.grp;",
    ),
    ("load.p4", "may_clone && (first[15:0] | second[15:0]) == 0", "may_clone"),
    ("load.p4", "second[15:0] < first[15:0]", "second[15:0] > first[15:0]"),
    ("load.p4", "shadows.write(base | (bit<32>) hdr.call.sid, hdr.base.round ++ hdr.call.state);", ""),
    ("load.p4", "loads.read(known, base | (bit<32>) hdr.call.sid);", "known = 0;"),
    ("load.p4", "shadows.read(known, base | (bit<32>) hdr.call.sid);", "known = 0;"),
    ("load.p4", "hdr.call.part == 0 && md.first", "md.first"),
    ("request.p4", "md.decision = slot[1:0];", ""),
    ("request.p4", "id == hdr.call.req_id && ", ""),
    ("filter.p4", "slot = 0;\n                }", "}"),
    ("filter.p4", "stops = slot[15:0] != hdr.call.sid;", "stops = true;"),
    ("filter.p4", "id != hdr.call.req_id || ", ""),
    ("filter.p4", "|| slot[47:16] != hdr.base.gaid", ""),
    ("address.p4", "hdr.call.clo = PC_CLO_CLONE;", ""),
    ("address.p4", "hdr.base.dst_incarnation = incarnation;", ""),
    ("call.p4", "hdr.call.clo = 0;", ""),
    ("call.p4", "md.addressee_server != 0 ? FATE_FORWARD : FATE_UNKNOWN_ENDPOINT", "FATE_FORWARD"),
    ("slot.p4", "product >> 32", "product >> 31"),
    // Outgoing frames.
    ("emit.p4", "hdr.map.index = md.committed;", ""),
    ("emit.p4", "say(PC_MAP_OLD);", ""),
    ("emit.p4", "hdr.base.round = 1w0 ++ md.mark[31:1];", "hdr.base.round = 1w0 ++ md.ballot_round;"),
    ("emit.p4", "hdr.base.round = hdr.base.round + 1;", ""),
    ("emit.p4", "answer(PC_KIND_MAP_SOFT, false);", "answer(PC_KIND_MAP_ACK, true);"),
    ("emit.p4", "md.ours && md.decided", "md.decided"),
    ("emit.p4", "answer(PC_KIND_MAP_ACK, (md.map_flags & PC_MAP_GET) == 0);", "answer(PC_KIND_MAP_ACK, false);"),
    ("strip.p4", "hdr.lanes[4].setInvalid();", ""),
    ("leave.p4", "hdr.base.src_incarnation = hdr.base.dst_incarnation;", ""),
    ("leave.p4", "md.fate == FATE_FORWARD && !md.known", "false"),
    ("egress.p4", "hdr.base.dst_incarnation = incarnation;", ""),
    ("egress.p4", "hdr.udp.len = hdr.base.length + UDP_LEN;", ""),
    // Counters.
    ("counters.p4", "if (md.counted.held) {", "if (md.counted.held && md.counted.applied) {"),
    ("counters.p4", "if (!md.second_pass) {", "if (true) {"),
];

/// Mistakes in what only the profile of map has.
const MISTAKES_OF_MAP_PROFILE: &[(&str, &str, &str)] = &[
    ("passes.p4", "hdr.pass.repeat_status = md.repeat_status;", ""),
    ("passes.p4", "hdr.pass.bank = (bit<8>) (md.bank >> 1);", "hdr.pass.bank = (bit<8>) md.bank;"),
    ("passes.p4", "md.opens = hdr.pass.opens == 1;", ""),
    ("passes.p4", "md.left_out = hdr.pass.overflow;", ""),
    ("passes.p4", "md.waits = hdr.pass.waits == 1;", ""),
    ("map.p4", "md.marked = md.marked >> PC_ARRAYS;", ""),
    ("map.p4", "md.bank = (md.bank << 1) | (bit<32>) md.half;", "md.bank = md.bank << 1;"),
    ("map.p4", "(md.overflow << PC_ARRAYS) | md.left_out", "md.overflow | md.left_out"),
    ("switch.p4", "md.work == WORK_ZERO || ", ""),
    ("switch.p4", "if (md.half == 0) {", "if (true) {"),
    ("parser.p4", "md.words_left = md.lanes_left << 1;", "md.words_left = md.lanes_left;"),
    ("strip.p4", "hdr.lower_32.setInvalid();", ""),
];

#[test]
fn every_mistake_in_p4_text_is_found() {
    find(PipelineProfile::Whole, MISTAKES);
}

#[test]
fn every_mistake_in_second_pass_is_found() {
    find(PipelineProfile::Map, MISTAKES_OF_MAP_PROFILE);
}

fn find(profile: PipelineProfile, mistakes: &[(&str, &str, &str)]) {
    let mut missed = Vec::new();
    for (file, from, to) in mistakes {
        let folder = patched(file, from, to);
        let program = compiled(folder.path(), profile.macros());
        let program = program.unwrap_or_else(|wrong| panic!("{file}: {from}: {wrong}"));
        let (mut theirs, mut ours) = (reference_of(profile, SIZE), pipeline_of(profile, &program, SIZE, false));
        match campaign(&mut theirs, &mut ours, 1, FRAMES, options()) {
            Ok(frames) => missed.push(format!("{file}: {to:?} for {from:?}, in {frames} frames")),
            Err(found) => {
                println!("{file}: {from}: seed {:?}, {} steps", found.seed, found.steps.len());
                assert!(found.steps.len() <= 30, "{file}: {from}: {found}");
            }
        }
    }
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}

#[test]
fn mistakes_cover_all_stages() {
    let generated = ["constants.p4", "headers.p4", "wire.p4", "switch.p4", "parser.p4", "checksum.p4"];
    for entry in folder().read_dir().expect("the program") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let known = MISTAKES.iter().chain(MISTAKES_OF_MAP_PROFILE).any(|(file, _, _)| *file == name)
            || generated.contains(&&*name);
        assert!(known || !name.ends_with(".p4"), "no mistake is planted in {name}");
    }
}
