//! Minimal XDP programs with one action for every frame, as object files for `ip link set … xdpdrv obj`.
//!
//! veth accepts frames that an XDP program at its peer reflects (`XDP_TX`) only if it has an XDP program itself: one
//! that passes all frames. Such a program has two instructions; encoded here by hand, it needs no compiler.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::error::Error;
use crate::tool;

/// Name of the section: `frags`, so that frames above about 3,500 bytes can pass (Linux 5.18).
pub(crate) const SECTION: &str = "xdp.frags";

/// Action of a program.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(crate) enum Action {
    Pass = 2,
    /// Reflect the frame through its interface.
    #[cfg(test)]
    Tx = 3,
}

const SECTION_NAMES: [&str; 4] = ["", ".strtab", SECTION, ".symtab"];
const FUNCTION: &str = "program";
const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;

/// Object file, without a name.
#[derive(Debug)]
pub(crate) struct Program(File);

impl Program {
    pub(crate) fn new(action: Action) -> Result<Self, Error> {
        Ok(Self(tool::memory_file("pathcall-xdp", &object(action))?))
    }

    /// Path for other processes of this user, valid while the file is open.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Relocatable ELF file with one function in the section of its program type.
fn object(action: Action) -> Vec<u8> {
    // `r0 = action; exit`, each as opcode, registers, offset and immediate.
    let program: [(u8, u8, u16, i32); 2] = [(0xb7, 0, 0, action as i32), (0x95, 0, 0, 0)];
    let mut text = Vec::new();
    for (opcode, registers, offset, immediate) in program {
        text.extend([opcode, registers]);
        text.extend(offset.to_ne_bytes());
        text.extend(immediate.to_ne_bytes());
    }
    let mut strings = Vec::new();
    let mut string = |name: &str| {
        let at = strings.len() as u32;
        strings.extend(name.bytes().chain([0]));
        at
    };
    let names = SECTION_NAMES.map(&mut string);
    let function = string(FUNCTION);
    strings.resize(strings.len().next_multiple_of(8), 0);

    let text_at = HEADER_BYTES;
    let symbols_at = text_at + text.len();
    let strings_at = symbols_at + 2 * SYMBOL_BYTES;
    let headers_at = strings_at + strings.len();

    let mut object = header(headers_at as u64);
    object.extend(&text);
    object.extend(symbol(0, 0, 0, 0));
    object.extend(symbol(function, GLOBAL_FUNCTION, 2, text.len()));
    object.extend(&strings);
    let [none, strtab, xdp, symtab] = names;
    object.extend(section([none, 0, 0, 0], 0, 0, 0, [0, 0]));
    object.extend(section([strtab, STRTAB, 0, 0], 0, strings_at, strings.len(), [1, 0]));
    object.extend(section([xdp, PROGBITS, 0, 0], ALLOCATED | EXECUTABLE, text_at, text.len(), [8, 0]));
    // Its strings are in section 1; its first global symbol is its second.
    object.extend(section([symtab, SYMTAB, 1, 1], 0, symbols_at, 2 * SYMBOL_BYTES, [8, SYMBOL_BYTES]));
    object
}

/// `STB_GLOBAL`, `STT_FUNC`.
const GLOBAL_FUNCTION: u8 = 0x12;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const ALLOCATED: u64 = 2;
const EXECUTABLE: u64 = 4;

fn header(section_headers_at: u64) -> Vec<u8> {
    const RELOCATABLE: u16 = 1;
    const BPF: u16 = 247;
    let endian = if cfg!(target_endian = "little") { 1 } else { 2 };
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, endian, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header.extend([RELOCATABLE, BPF].iter().flat_map(|half| half.to_ne_bytes()));
    header.extend(1_u32.to_ne_bytes());
    // No entry point and no program headers.
    header.extend([0, 0, section_headers_at].iter().flat_map(|word| word.to_ne_bytes()));
    header.extend(0_u32.to_ne_bytes());
    // Sizes and counts of headers; the names of sections are in section 1.
    let halves = [HEADER_BYTES as u16, 0, 0, SECTION_HEADER_BYTES as u16, SECTION_NAMES.len() as u16, 1];
    header.extend(halves.iter().flat_map(|half| half.to_ne_bytes()));
    header
}

fn symbol(name: u32, info: u8, section: u16, size: usize) -> Vec<u8> {
    let mut symbol = name.to_ne_bytes().to_vec();
    symbol.extend([info, 0]);
    symbol.extend(section.to_ne_bytes());
    symbol.extend([0, size as u64].iter().flat_map(|word| word.to_ne_bytes()));
    symbol
}

/// `words` are name, type, link and info; `last` alignment and size of an entry.
fn section(words: [u32; 4], flags: u64, at: usize, size: usize, last: [usize; 2]) -> Vec<u8> {
    let [name, kind, link, info] = words;
    let mut section: Vec<u8> = [name, kind].iter().flat_map(|word| word.to_ne_bytes()).collect();
    section.extend([flags, 0, at as u64, size as u64].iter().flat_map(|word| word.to_ne_bytes()));
    section.extend([link, info].iter().flat_map(|word| word.to_ne_bytes()));
    section.extend(last.iter().flat_map(|word| (*word as u64).to_ne_bytes()));
    section
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::{Testbed, root_tests};

    /// Frames that an element's program reflects arrive at the host's interface, on every kind of link.
    #[test]
    fn reflected_frames_arrive() {
        const FRAMES: u64 = 100;
        if !root_tests("reflected_frames_arrive") {
            return;
        }
        let plain = || Testbed::builder().hosts(1);
        for builder in [plain(), plain().mtu(9000), plain().rate("1gbit").unwrap()] {
            let bed = builder.up().unwrap();
            let element = bed.element(1).unwrap();
            let back = Program::new(Action::Tx).unwrap();
            let attach = ["link", "set", "dev", "h1", "xdpdrv", "obj", &back.path(), "sec", SECTION];
            assert!(element.command("ip").args(attach).status().unwrap().success());
            let host = bed.host(1).unwrap();
            let traffic = std::thread::spawn(move || {
                host.enter().unwrap();
                let socket = UdpSocket::bind((host.address(), 0)).unwrap();
                (0..FRAMES).for_each(|_| assert_eq!(socket.send_to(b"frame", (element.address(), 9)).unwrap(), 5));
            });
            traffic.join().unwrap();
            let began = std::time::Instant::now();
            while bed.link(1).unwrap().traffic().unwrap().down.frames < FRAMES {
                assert!(began.elapsed().as_secs() < 180, "{:?}", bed.link(1).unwrap().traffic());
            }
        }
    }

    #[test]
    fn elf_headers_match_layout() {
        let object = object(Action::Pass);
        assert_eq!(header(0).len(), HEADER_BYTES);
        assert_eq!(section([0; 4], 0, 0, 0, [0; 2]).len(), SECTION_HEADER_BYTES);
        assert_eq!(symbol(0, 0, 0, 0).len(), SYMBOL_BYTES);
        let word = |at: usize| u64::from_ne_bytes(object[at..at + 8].try_into().unwrap()) as usize;
        let sections = word(40);
        assert_eq!(object.len(), sections + SECTION_NAMES.len() * SECTION_HEADER_BYTES);
        let program = sections + 2 * SECTION_HEADER_BYTES;
        let (at, size) = (word(program + 24), word(program + 32));
        assert_eq!((at % 8, size), (0, 16));
        assert_eq!(object[at], 0xb7);
        let strings = word(sections + SECTION_HEADER_BYTES + 24);
        let name = u32::from_ne_bytes(object[program..program + 4].try_into().unwrap()) as usize;
        assert!(object[strings + name..].starts_with(b"xdp.frags\0"));
    }
}
