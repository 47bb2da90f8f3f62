//! Generator of the C header `bpf/wire.h` for the XDP program, and test that the file is up to date.
//!
//! `UPDATE=1 cargo test -p pathcall-wire --test main c_header` writes the file.

use std::fmt::Write;

use crate::common::{compare_or_update, variants};

use pathcall_wire::base::{MAGIC, TOKEN_LEN, VERSION};
use pathcall_wire::clone::{CALLER_ID, CLONE, MAX_PARTS, MAX_SERVERS, ORIGINAL};
use pathcall_wire::map::{LOCK_PARKED, LOCK_TAG, LOCK_WANTED};
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{
    Base, CloneFlags, CloneHeader, FieldSpec, Flags, ForwardTarget, FrameKind, KEYED_LANES, KEYED_WIDTH, LINEAR_LANES,
    MAX_FRAME, MAX_WORKERS, MapFlags, MapHeader, OpType, RECORD_PLACES, W_MAX,
};

/// `struct name { … }` of a header whose fields follow each other without gaps.
fn layout(name: &str, fields: &[FieldSpec], len: usize) -> String {
    let mut text = format!("struct {name} {{\n");
    let mut at = 0;
    for FieldSpec { name, offset, len } in fields {
        assert_eq!(*offset, at, "{name}: no gap before it");
        at += len;
        let kind = match len {
            1 => "__u8",
            2 => "__be16",
            4 => "__be32",
            8 => "__be64",
            _ => panic!("{name}: no C type of {len} bytes"),
        };
        writeln!(text, "\t{kind} {name};").expect("text");
    }
    assert_eq!(at, len, "{name}: no gap at its end");
    text + "} __attribute__((packed));\n\n"
}

/// C enumeration of constants, with a prefix.
fn constants(prefix: &str, values: &[(String, u64)]) -> String {
    let lines: String = values.iter().map(|(name, value)| format!("\t{prefix}_{name} = {value:#x},\n")).collect();
    format!("enum {{\n{lines}}};\n\n")
}

fn header() -> String {
    let sizes = [
        ("MAGIC", u64::from(MAGIC)),
        ("VERSION", u64::from(VERSION)),
        ("TOKEN_LEN", TOKEN_LEN as u64),
        ("W_MAX", u64::from(W_MAX)),
        ("LINEAR_LANES", LINEAR_LANES as u64),
        ("KEYED_LANES", KEYED_LANES as u64),
        ("KEYED_WIDTH", KEYED_WIDTH as u64),
        ("RECORD_PLACES", RECORD_PLACES as u64),
        ("MAX_FRAME", MAX_FRAME as u64),
        ("MAX_WORKERS", MAX_WORKERS as u64),
        ("MAX_BALLOT_KEY", MAX_BALLOT_KEY as u64),
        ("LOCK_TAG", u64::from(LOCK_TAG)),
        ("LOCK_WANTED", u64::from(LOCK_WANTED)),
        ("LOCK_PARKED", u64::from(LOCK_PARKED)),
        ("MAX_SERVERS", MAX_SERVERS as u64),
        ("MAX_PARTS", MAX_PARTS as u64),
        ("CLO_ORIGINAL", u64::from(ORIGINAL)),
        ("CLO_CLONE", u64::from(CLONE)),
        ("CALLER_ID", CALLER_ID),
    ];
    let mut text = String::from(
        "/* SPDX-License-Identifier: Apache-2.0 */\n/* Frames as they travel. Made from crates/wire by its test c_header; \
         not to be edited. */\n#pragma once\n\n#include <linux/types.h>\n\n",
    );
    for (name, value) in sizes {
        let suffix = if u32::try_from(value).is_ok() { "" } else { "ULL" };
        writeln!(text, "#define PC_{name} {value:#x}{suffix}").expect("text");
    }
    let kinds = variants(|value| FrameKind::parse(value).ok());
    let bits = |clone: bool| {
        let of = variants(|value| FrameKind::parse(value).ok().filter(|kind| kind.is_clone() == clone));
        of.iter().fold(0, |bits: u64, (_, kind)| bits | 1 << kind)
    };
    let (map, clone) = (bits(false), bits(true));
    writeln!(text, "/* Bit n: kind n has this ability's header. */").expect("text");
    writeln!(text, "#define PC_KINDS_MAP {map:#x}ULL\n#define PC_KINDS_CLONE {clone:#x}ULL").expect("text");
    let (ops, targets) =
        (variants(|value| OpType::parse(value).ok()), variants(|value| ForwardTarget::parse(value).ok()));
    for (name, values) in [("OPS", &ops), ("TARGETS", &targets)] {
        assert!(values.iter().map(|(_, value)| *value).eq(0..values.len() as u64), "{name} have no gaps");
        writeln!(text, "#define PC_{name} {:#x}", values.len()).expect("text");
    }
    text.push('\n');
    text += &layout("pc_base", Base::LAYOUT, Base::LEN);
    text += &layout("pc_map", MapHeader::LAYOUT, MapHeader::LEN);
    text += &layout("pc_clone", CloneHeader::LAYOUT, CloneHeader::LEN);
    text += &constants("PC_KIND", &kinds);
    text += &constants("PC_FLAG", &named!(Flags: FLIP ECN FROM_SERVER MCAST CROSS TOKEN NOT_ADMITTED));
    text += &constants(
        "PC_MAP",
        &named!(MapFlags: OVERFLOW COUNT CLEAR ADD GET LINEAR WIDE BARE ROUND REACHED OLD DIVERTED LOGICAL DENIED CLAIM
            WAIT ELEMENT_ONLY),
    );
    text += &constants("PC_CLONE", &named!(CloneFlags: CLONE SHORTEST DIRECT FAILED ALL));
    text += &constants("PC_OP", &ops);
    text += &constants("PC_TO", &targets);
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[test]
fn c_header_is_up_to_date() {
    compare_or_update("bpf/wire.h", &header(), "c_header");
}
