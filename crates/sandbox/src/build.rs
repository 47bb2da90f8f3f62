//! From a guest's C to a library or program, by the compilers of the machine.
//!
//! ```text
//! Wasm     guest.c ─ clang ─► guest.o ─ wasm-ld ─► guest.wasm ─ wasm2c ─► C, with lines ─ cc, with c/wasm.c ─► guest.so
//! Native   guest.c ─ cc, with c/native.c ─► guest.so
//! Process  guest.c ─ cc, with c/child.c, no libc ─► guest
//! ```
//!
//! What was built is kept under a name made of everything that went into it, and found again. The compilers' errors come
//! back as [`Message`]s, with the places that the text's `#line` gave them.

mod lines;
mod tools;

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use siphasher::sip128::{Hasher128, SipHasher13};

pub use tools::{Lacking, Tools};

/// Bytes of linear memory of a guest in WebAssembly: stack, variables, and 64 KiB that nobody may touch.
const MEMORY_BYTES: u32 = 64 << 20;
const STACK_BYTES: u32 = 128 << 10;
/// A guest's function may not take more of the native stack.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Parameters and results of a function that may be called by pointer (`c/wasm.c`).
const SIGNATURE_MAX: usize = 32;

const ROOM_H: &str = include_str!("../c/room.h");
const WASM_C: &str = include_str!("../c/wasm.c");
const NATIVE_C: &str = include_str!("../c/native.c");
const CHILD_C: &str = include_str!("../c/child.c");
/// Decides on the result, too.
const LINES_RS: &str = include_str!("build/lines.rs");
const FREESTANDING_C: &str = include_str!("../c/freestanding.c");

/// Which room a guest runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// In this process, contained by WebAssembly.
    Wasm,
    /// In a process of its own, contained by the kernel. Needs a C compiler only.
    Process,
    /// In this process, contained by nothing.
    Native,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Wasm => "WebAssembly, compiled to machine code",
            Self::Process => "a process of its own",
            Self::Native => "native, not contained",
        })
    }
}

impl Kind {
    /// The best room that contains its guest and that this machine has tools for.
    pub fn best() -> Result<Self, Lacking> {
        Tools::find(Self::Wasm).map(|_| Self::Wasm).or_else(|lacking| match Tools::find(Self::Process) {
            Ok(_) => Ok(Self::Process),
            Err(_) => Err(lacking),
        })
    }
}

/// A guest's text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// C, with `#line` where it comes from elsewhere.
    pub text: &'a str,
}

/// A guest that was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Which room it is for.
    pub kind: Kind,
    /// The library or program.
    pub file: PathBuf,
}

/// What a compiler said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// File, line and column, from 1, if it named them.
    pub at: Option<(String, u32, u32)>,
    /// In one line.
    pub text: String,
}

impl std::fmt::Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Some((file, line, column)) => write!(f, "{file}:{line}:{column}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// A guest that can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Tools are lacking.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// Its C is wrong.
    #[error("the handler's C does not compile: {}", first(.0))]
    Compile(Vec<Message>),
    /// A step after the guest's own compiler failed.
    #[error("{tool} failed on the handler: {said}")]
    Step {
        /// Which tool.
        tool: String,
        /// What it said.
        said: String,
    },
    /// Files could not be written or read.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

fn first(messages: &[Message]) -> String {
    let first = messages.first().map(ToString::to_string).unwrap_or_default();
    if messages.len() > 1 { format!("{first} (and {} more)", messages.len() - 1) } else { first }
}

/// Builds a guest for a room, or finds it in `cache`, where it is kept.
pub fn build(kind: Kind, source: Source<'_>, cache: &Path) -> Result<Built, BuildError> {
    let tools = Tools::find(kind)?;
    let file = |dir: &Path| dir.join(if kind == Kind::Process { "guest" } else { "guest.so" });
    let place = cache.join(name(kind, source, &tools));
    if file(&place).exists() {
        return Ok(Built { kind, file: file(&place) });
    }
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = format!("new-{}-{}", std::process::id(), TURN.fetch_add(1, Ordering::Relaxed));
    let work = Work { dir: cache.join(turn) };
    make_private(cache)?;
    fs::create_dir(&work.dir).map_err(|error| BuildError::File { path: work.dir.clone(), error })?;
    work.write("guest.c", source.text)?;
    match kind {
        Kind::Wasm => work.wasm(&tools)?,
        Kind::Native => work.native(&tools)?,
        Kind::Process => work.process(&tools)?,
    }
    // Whoever was faster has made the same.
    if let Err(error) = fs::rename(&work.dir, &place)
        && !file(&place).exists()
    {
        return Err(BuildError::File { path: place, error });
    }
    Ok(Built { kind, file: file(&place) })
}

impl Built {
    /// The line of source at an address of a [`Trap`](crate::Trap), as `file:line`, if the debugger's information and
    /// `addr2line` (Debian: binutils) tell.
    #[must_use]
    pub fn line(&self, at: u64) -> Option<String> {
        if at == 0 {
            return None;
        }
        let tool = tools::path_of(&["addr2line"])?;
        let said = Command::new(tool).args(["-i", "-e"]).arg(&self.file).arg(format!("{at:#x}")).output().ok()?;
        // From the innermost function on, of those that became one.
        String::from_utf8(said.stdout).ok()?.lines().find_map(|line| {
            let (file, line) = line.split(" (").next()?.rsplit_once(':')?;
            let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
            (!is_generated(file)).then(|| format!("{}:{line}", base(file)))
        })
    }
}

fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Whether a place there helps nobody who wrote the guest: our own files, and names in angle brackets.
fn is_generated(file: &str) -> bool {
    let file = base(file);
    let ours = ["guest.c", "guest.h", "wasm.c", "native.c", "child.c", "room.h", "freestanding.c", "??"];
    ours.contains(&file) || file.starts_with('<')
}

/// Where one guest is being built; gone when it is done or has failed.
struct Work {
    dir: PathBuf,
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Work {
    fn wasm(&self, tools: &Tools) -> Result<(), BuildError> {
        self.write("freestanding.c", FREESTANDING_C)?;
        let clang = ["--target=wasm32-unknown-unknown", "-mcpu=mvp", "-mbulk-memory", "-O2", "-std=gnu11", "-g"];
        let clang = [&clang[..], &GUEST_FLAGS, &["-c"]].concat();
        self.run(&tools.clang, &[&clang[..], &["guest.c", "-o", "guest.o"]].concat(), true)?;
        let alone = [&clang[..], &["-fno-builtin", "freestanding.c", "-o", "freestanding.o"]].concat();
        self.run(&tools.clang, &alone, false)?;
        let memory = format!("--initial-memory={MEMORY_BYTES}");
        let memory_max = format!("--max-memory={MEMORY_BYTES}");
        let stack = format!("stack-size={STACK_BYTES}");
        let link = [
            "--no-entry",
            "--export=pc_enter",
            "--export=pc_area",
            "--export=pc_keep",
            "--stack-first",
            "-z",
            &stack,
            &memory,
        ];
        let link = [&link[..], &[&memory_max, "guest.o", "freestanding.o", "-o", "guest.wasm"]].concat();
        self.run(&tools.wasm_ld, &link, true)?;
        fs::rename(self.dir.join("guest.c"), self.dir.join("written.c"))
            .map_err(|error| self.failed("guest.c", error))?;
        self.run(&tools.wasm2c, &["guest.wasm", "-n", "guest", "-o", "guest.c"], false)?;
        let text = fs::read_to_string(self.dir.join("guest.c")).map_err(|error| self.failed("guest.c", error))?;
        let wasm = fs::read(self.dir.join("guest.wasm")).map_err(|error| self.failed("guest.wasm", error))?;
        self.write("guest.c", &checked(&text, &wasm)?)?;
        self.write("room.h", ROOM_H)?;
        self.write("wasm.c", WASM_C)?;
        let frame = format!("-Werror=frame-larger-than={FRAME_BYTES_MAX}");
        let include = format!("-I{}", tools.include.display());
        let cc = ["-O2", "-g1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-fvisibility=hidden", "-w", &frame, &include];
        // Traps keep the place of their own.
        let apart = ["-fno-crossjumping", "-fno-tree-tail-merge", BOUND];
        let cc = [&cc[..], &apart, &["-fno-math-errno", "wasm.c", "-o", "guest.so", "-lm"]].concat();
        self.run(&tools.cc, &cc, false)
    }

    fn native(&self, tools: &Tools) -> Result<(), BuildError> {
        self.write("room.h", ROOM_H)?;
        self.write("native.c", NATIVE_C)?;
        let cc = ["-O2", "-std=gnu11", "-g1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-fvisibility=hidden"];
        let cc =
            [&cc[..], &GUEST_FLAGS, &["guest.c", "native.c", "-Wl,-z,defs", BOUND, "-o", "guest.so", "-lm"]].concat();
        self.run(&tools.cc, &cc, true)
    }

    fn process(&self, tools: &Tools) -> Result<(), BuildError> {
        self.write("child.c", CHILD_C)?;
        self.write("freestanding.c", FREESTANDING_C)?;
        let ours =
            ["-O2", "-std=gnu11", "-fno-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-ffreestanding", "-c"];
        let plain = ["-fno-builtin", "-fno-tree-loop-distribute-patterns", "freestanding.c", "-o", "freestanding.o"];
        self.run(&tools.cc, &[&ours[..], &plain].concat(), false)?;
        self.run(&tools.cc, &[&ours[..], &["child.c", "-o", "child.o"]].concat(), false)?;
        let guest = [&ours[..], &GUEST_FLAGS, &["-g1", "-fno-asynchronous-unwind-tables"]].concat();
        self.run(&tools.cc, &[&guest[..], &["guest.c", "-o", "guest.o"]].concat(), true)?;
        let link = ["-static", "-nostdlib", "-no-pie", "guest.o", "child.o", "freestanding.o", "-lgcc", "-o", "guest"];
        self.run(&tools.cc, &link, true)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), BuildError> {
        fs::write(self.dir.join(name), text).map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, error: io::Error) -> BuildError {
        BuildError::File { path: self.dir.join(name), error }
    }

    /// Runs a tool; its errors are the guest's if `of_guest`.
    fn run(&self, tool: &Path, args: &[&str], of_guest: bool) -> Result<(), BuildError> {
        let output = Command::new(tool)
            .args(args)
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| BuildError::File { path: tool.to_owned(), error })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let messages = if of_guest { messages(&said) } else { Vec::new() };
        if messages.is_empty() {
            let said = said.lines().find(|line| line.contains("error")).or(said.lines().next());
            let said = said.unwrap_or("it said nothing").to_owned();
            return Err(BuildError::Step { tool: tool.display().to_string(), said });
        }
        Err(BuildError::Compile(messages))
    }
}

/// All names are found when it is loaded: a signal's handler calls `_longjmp`, and may pull the thread out of any other
/// call, but the loader's search for a name is neither small enough for its stack nor to be broken off.
const BOUND: &str = "-Wl,-z,now";

/// For the guest's own text. What is wrong for sure is an error, not a warning that nobody reads.
const GUEST_FLAGS: [&str; 8] = [
    "-ffreestanding",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
];

/// C from wasm2c, with lines and with a look at the stack in each function; refused if it is not of the form that
/// `c/wasm.c` knows.
fn checked(text: &str, wasm: &[u8]) -> Result<String, BuildError> {
    let unknown = |said: String| BuildError::Step { tool: "wasm2c".into(), said };
    if !text.contains("Z_guestZ_pc_enter") || !text.contains(lines::PROLOGUE) {
        return Err(unknown("it writes another form of C than that of wabt 1.0.32 (Debian 12)".into()));
    }
    let wide =
        |line: &&str| line.contains("wasm_rt_register_func_type(") && line.matches("WASM_RT_").count() > SIGNATURE_MAX;
    if let Some(line) = text.lines().find(wide) {
        return Err(unknown(format!("a function has more than {SIGNATURE_MAX} parameters: {}", line.trim())));
    }
    // What is one step of the guest's is code of its line, not of a function's beside it.
    let text = text.replace("static inline ", "static inline __attribute__((always_inline)) ");
    Ok(lines::with_lines(wasm, &text).replace(lines::PROLOGUE, "PC_ENTER"))
}

/// The errors among what a compiler or linker said.
fn messages(said: &str) -> Vec<Message> {
    let mut messages = Vec::new();
    for line in said.lines() {
        let undefined = ["undefined symbol: ", "undefined reference to "]
            .into_iter()
            .find_map(|words| line.split_once(words).map(|(_, name)| name.trim_matches(['`', '\''])));
        if let Some(name) = undefined {
            let text = format!("`{name}` is not there: a handler has no libc, only what its header declares");
            if !messages.iter().any(|known: &Message| known.text == text) {
                messages.push(Message { at: None, text });
            }
            continue;
        }
        let Some((place, text)) = line.split_once(": error: ").or(line.split_once(": fatal error: ")) else { continue };
        let mut parts = place.rsplitn(3, ':');
        let column = parts.next().and_then(|part| part.parse().ok());
        let row = parts.next().and_then(|part| part.parse().ok());
        let at = match (parts.next(), row, column) {
            (Some(file), Some(row), Some(column)) => Some((file.to_owned(), row, column)),
            _ => None,
        };
        messages.push(Message { at, text: text.to_owned() });
    }
    messages
}

/// A name that changes with whatever goes into the result.
fn name(kind: Kind, source: Source<'_>, tools: &Tools) -> String {
    let mut hash = SipHasher13::new();
    hash.write_u8(kind as u8);
    for text in [source.text, ROOM_H, WASM_C, NATIVE_C, CHILD_C, FREESTANDING_C, include_str!("build.rs"), LINES_RS] {
        hash.write_usize(text.len());
        hash.write(text.as_bytes());
    }
    tools.identify(&mut hash);
    format!("{:032x}", hash.finish128().as_u128())
}

/// A directory that nobody else may write to: code from it is run.
fn make_private(dir: &Path) -> Result<(), BuildError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| BuildError::File { path: dir.to_owned(), error })
}
