//! Parser of table entries given by the operator, one a line: `TABLE KEY… ACTION ARGUMENT…`.
//!
//! ```text
//! # tenant, prefix      action   next hop
//! fib 7 10.1.0.0/16     forward  3
//! ```
//!
//! Numbers are decimal, hexadecimal (`0x`) or IPv4 addresses; a prefix has `/BITS`. The last part of a path is enough
//! to name a table or an action.

use std::net::Ipv4Addr;

use pathcall_p4::ir::{ActionId, Match, MatchKind, Program, TableEntry, TableId};

/// Table entry with its line number, from 1.
pub(super) struct GivenEntry {
    pub(super) line: usize,
    pub(super) table: TableId,
    pub(super) entry: TableEntry,
}

/// Parses all lines. The error has the number of the first invalid line and the reason.
pub(super) fn entries(program: &Program, text: &str) -> Result<Vec<GivenEntry>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at, line.split('#').next().unwrap_or("").trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty());
    let given = |(at, line)| match entry(program, line) {
        Ok((table, entry)) => Ok(GivenEntry { line: at + 1, table, entry }),
        Err(why) => Err(format!("line {}: {why}", at + 1)),
    };
    lines.map(given).collect()
}

fn entry(program: &Program, line: &str) -> Result<(TableId, TableEntry), String> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or("");
    let known = program.tables.iter().position(|table| is_named(&table.name, name));
    let id = known.ok_or_else(|| format!("unknown table {name:?}"))?;
    let table = &program.tables[id];
    let mut keys = Vec::new();
    for key in &table.keys {
        let word = words.next().ok_or_else(|| format!("missing key {} at the end of the line", key.name))?;
        let width = key.expr.ty.width();
        let (value, bits) = match word.split_once('/') {
            Some((value, bits)) => (value, bits.parse().map_err(|_| format!("invalid prefix length {bits:?}"))?),
            None => (word, width),
        };
        if key.kind == MatchKind::Exact && bits != width {
            return Err(format!("key {} is exact: remove the prefix", key.name));
        }
        keys.push(Match { value: number(value)?, prefix_bits: bits });
    }
    let name = words.next().ok_or("missing action at the end of the line")?;
    let of = |id: &&ActionId| is_named(&program.actions[id.0 as usize].name, name);
    let action =
        *table.actions.iter().find(of).ok_or_else(|| format!("table {} has no action {name:?}", table.name))?;
    let args = words.map(number).collect::<Result<_, _>>()?;
    Ok((TableId(id as u32), TableEntry { keys, action, args }))
}

fn is_named(path: &str, name: &str) -> bool {
    path == name || path.rsplit('.').next() == Some(name)
}

fn number(word: &str) -> Result<u128, String> {
    if let Ok(address) = word.parse::<Ipv4Addr>() {
        return Ok(u32::from(address).into());
    }
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| format!("invalid number or address {word:?}"))
}
