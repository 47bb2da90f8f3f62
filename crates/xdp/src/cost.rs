//! Instruction counts of the program by source file, read from the compiled object.
//!
//! ```text
//! switch.bpf.o ─► sections ─► .BTF.ext: line of each instruction ─► count by file, of frames' program
//! ```
//!
//! The counts are of the compiler's output, before the kernel replaces calls by its own instructions, so they are equal
//! on every machine with the same compiler.

use std::collections::BTreeMap;

use crate::Error;
use crate::kernel::SWITCH;

/// Version line of the compiler that built the program.
pub const COMPILER: &str = env!("PATHCALL_XDP_COMPILER");

/// Bytes of an instruction.
const INSTRUCTION: u32 = 8;
/// File of the control programs, which process no frames.
const LOADERS: &str = "control.h";

/// Instructions of the program by file of `bpf/`, largest first, without the control programs.
///
/// # Errors
/// [`Error::Missing`] if the object was not compiled by clang.
pub fn instructions() -> Result<Vec<(String, u32)>, Error> {
    let mut files = BTreeMap::<String, u32>::new();
    for ((file, _), count) in Object(SWITCH).instructions().ok_or(Error::Missing("line numbers"))? {
        *files.entry(file).or_default() += count;
    }
    files.remove(LOADERS);
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    Ok(files)
}

/// Instructions of an object by source line; `None` if the object was not compiled by clang.
pub(crate) fn by_line(object: &[u8]) -> Option<BTreeMap<u32, u32>> {
    let mut lines = BTreeMap::new();
    for ((_, line), count) in Object(object).instructions()? {
        *lines.entry(line).or_default() += count;
    }
    Some(lines)
}

/// Compiled object: 64-bit ELF in the machine's byte order.
struct Object<'a>(&'a [u8]);

/// Section of the object.
#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a str,
    bytes: &'a [u8],
}

impl<'a> Object<'a> {
    /// Sections by the headers `Elf64_Ehdr` and `Elf64_Shdr`.
    fn sections(&self) -> Option<Vec<Section<'a>>> {
        let table = usize::try_from(u64_at(self.0, 0x28)?).ok()?;
        let (each, count, names) = (u16_at(self.0, 0x3a)?, u16_at(self.0, 0x3c)?, u16_at(self.0, 0x3e)?);
        let header = |i: u16| self.0.get(table + usize::from(i) * usize::from(each)..);
        let bytes = |header: &[u8]| {
            let (at, len) = (u64_at(header, 0x18)?, u64_at(header, 0x20)?);
            self.0.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(len).ok()?)
        };
        let names = bytes(header(names)?)?;
        let section = |i| {
            let header = header(i)?;
            Some(Section { name: text_at(names, u32_at(header, 0)?)?, bytes: bytes(header)? })
        };
        // Sections without bytes in the file (`SHT_NOBITS`) have no range in the file.
        Some((0..count).filter_map(section).collect())
    }

    /// Instructions by file and line, from `.BTF` and `.BTF.ext` (the kernel's Documentation/bpf/btf.rst).
    fn instructions(&self) -> Option<BTreeMap<(String, u32), u32>> {
        let sections = self.sections()?;
        let section = |name: &str| sections.iter().find(|section| section.name == name).map(|section| section.bytes);
        let (types, lines) = (section(".BTF")?, section(".BTF.ext")?);
        let texts = types.get((u32_at(types, 4)? + u32_at(types, 16)?) as usize..)?;
        let at = (u32_at(lines, 4)? + u32_at(lines, 16)?) as usize;
        let mut lines = lines.get(at..at + u32_at(lines, 20)? as usize)?;
        let record = u32_at(lines, 0)? as usize;
        lines = &lines[4..];

        let mut files = BTreeMap::new();
        while !lines.is_empty() {
            let (name, count) = (text_at(texts, u32_at(lines, 0)?)?, u32_at(lines, 4)? as usize);
            let (records, rest) = lines[8..].split_at_checked(count * record)?;
            lines = rest;
            let end = section(name)?.len() as u32;
            // The line is in the bits above the column's 10 bits.
            let start = |line| Some((u32_at(line, 0)?, u32_at(line, 4)?, u32_at(line, 12)? >> 10));
            let mut starts: Vec<(u32, u32, u32)> = records.chunks_exact(record).map(start).collect::<Option<_>>()?;
            starts.sort_by_key(|(at, ..)| *at);
            let ends = starts.iter().skip(1).map(|(at, ..)| *at).chain([end]);
            for ((at, file, line), end) in starts.iter().zip(ends) {
                let path = text_at(texts, *file)?;
                let file = path.rsplit('/').next().unwrap_or(path);
                *files.entry((file.to_owned(), *line)).or_default() += (end - at) / INSTRUCTION;
            }
        }
        Some(files)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// NUL-terminated text at an offset.
fn text_at(bytes: &[u8], at: u32) -> Option<&str> {
    let bytes = bytes.get(at as usize..)?;
    let len = bytes.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&bytes[..len]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts by file and line add up to all instructions.
    #[test]
    fn instruction_counts_cover_all_code() {
        let object = Object(SWITCH);
        let programs = |name: &str| [".text", "syscall"].contains(&name) || name.starts_with("xdp");
        let code = |section: &&Section<'_>| programs(section.name);
        let all: usize = object.sections().expect("ELF").iter().filter(code).map(|section| section.bytes.len()).sum();
        let counted: u32 = object.instructions().expect("lines").values().sum();
        assert_eq!(counted * INSTRUCTION, all as u32);
    }

    #[test]
    fn damaged_objects_are_refused() {
        for len in (0..SWITCH.len()).step_by(997) {
            let _ = Object(&SWITCH[..len]).instructions();
        }
        assert!(Object(&SWITCH[..64]).instructions().is_none());
    }
}
