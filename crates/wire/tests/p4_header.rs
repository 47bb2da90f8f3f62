//! Generator of the P4 headers `p4/wire.p4`, and test that the file is up to date.
//!
//! `UPDATE=1 cargo test -p pathcall-wire --test main p4_header` writes the file.

use std::fmt::Write;

use crate::common::{compare_or_update, variants};
use pathcall_wire::base::{MAGIC, TOKEN_LEN, VERSION};
use pathcall_wire::clone::{CALLER_ID, CLONE, MAX_PARTS, ORIGINAL};
use pathcall_wire::map::{LOCK_PARKED, LOCK_TAG, LOCK_WANTED};
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{
    Base, CloneFlags, CloneHeader, FieldSpec, Flags, ForwardTarget, FrameKind, KEYED_LANES, KEYED_WIDTH, MAX_WORKERS,
    MapFlags, MapHeader, OpType,
};

/// `header name { … }` of a header whose fields follow each other without gaps.
fn layout(name: &str, fields: &[FieldSpec], len: usize) -> String {
    let mut text = format!("header {name} {{\n");
    let mut at = 0;
    for FieldSpec { name, offset, len } in fields {
        assert_eq!(*offset, at, "{name}: no gap before it");
        at += len;
        writeln!(text, "    bit<{}> {name};", len * 8).expect("text");
    }
    assert_eq!(at, len, "{name}: no gap at its end");
    text + "}\n\n"
}

/// P4 constants with this number of bits.
fn constants(bits: u32, prefix: &str, values: &[(String, u64)]) -> String {
    let lines: String =
        values.iter().map(|(name, value)| format!("const bit<{bits}> {prefix}_{name} = {value:#x};\n")).collect();
    lines + "\n"
}

fn headers() -> String {
    let mut text = String::from(
        "/* SPDX-License-Identifier: Apache-2.0 */\n/* Frames as they travel. Made from crates/wire by its test \
         p4_header; not to be edited. */\n\n",
    );
    let (ops, targets) =
        (variants(|value| OpType::parse(value).ok()), variants(|value| ForwardTarget::parse(value).ok()));
    let sized = [
        (16, "MAGIC", u64::from(MAGIC)),
        (8, "VERSION", u64::from(VERSION)),
        (32, "BASE_LEN", Base::LEN as u64),
        (32, "TOKEN_LEN", TOKEN_LEN as u64),
        (32, "MAP_LEN", MapHeader::LEN as u64),
        (32, "CLONE_LEN", CloneHeader::LEN as u64),
        (16, "KEYED_LANES", KEYED_LANES as u64),
        (32, "KEYED_WIDTH", KEYED_WIDTH as u64),
        (16, "MAX_WORKERS", MAX_WORKERS as u64),
        (16, "MAX_BALLOT_KEY", MAX_BALLOT_KEY as u64),
        (32, "LOCK_TAG", u64::from(LOCK_TAG)),
        (32, "LOCK_WANTED", u64::from(LOCK_WANTED)),
        (32, "LOCK_PARKED", u64::from(LOCK_PARKED)),
        (16, "MAX_PARTS", MAX_PARTS as u64),
        (8, "CLO_ORIGINAL", u64::from(ORIGINAL)),
        (8, "CLO_CLONE", u64::from(CLONE)),
        (64, "CALLER_ID", CALLER_ID),
        (8, "OPS", ops.len() as u64),
        (8, "TARGETS", targets.len() as u64),
    ];
    for (bits, name, value) in sized {
        writeln!(text, "const bit<{bits}> PC_{name} = {value:#x};").expect("text");
    }
    text.push('\n');
    text += &layout("base_t", Base::LAYOUT, Base::LEN);
    text += &layout("map_t", MapHeader::LAYOUT, MapHeader::LEN);
    text += &layout("call_t", CloneHeader::LAYOUT, CloneHeader::LEN);
    text += &constants(8, "PC_KIND", &variants(|value| FrameKind::parse(value).ok()));
    text += &constants(16, "PC_FLAG", &named!(Flags: FLIP ECN FROM_SERVER MCAST CROSS TOKEN NOT_ADMITTED));
    text += &constants(
        16,
        "PC_MAP",
        &named!(MapFlags: OVERFLOW COUNT CLEAR ADD GET LINEAR WIDE BARE ROUND REACHED OLD DIVERTED LOGICAL DENIED CLAIM
            WAIT ELEMENT_ONLY),
    );
    text += &constants(8, "PC_CLONE", &named!(CloneFlags: CLONE SHORTEST DIRECT ALL));
    text += &constants(8, "PC_OP", &ops);
    text += &constants(8, "PC_TO", &targets);
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[test]
fn p4_headers_are_up_to_date() {
    compare_or_update("p4/wire.p4", &headers(), "p4_header");
}
