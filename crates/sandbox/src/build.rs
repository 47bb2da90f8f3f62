//! Build of a guest's C into a library or program, by the compilers of the machine.
//!
//! ```text
//! Wasm     guest.c ─ clang ─► guest.o ─ wasm-ld ─► guest.wasm ─ wasm2c ─► C with lines ─ cc, c/wasm.c ─► guest.so
//! Native   guest.c ─ cc, c/native.c ─► guest.so
//! Process  guest.c ─ cc, c/child.c, no libc ─► guest
//! ```
//!
//! The result is cached under a name derived from everything that goes into it. Compiler errors are returned as
//! [`CompilerMessage`]s, with the positions given by `#line` in the text.

mod lines;
mod tools;

use std::fs;
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use siphasher::sip128::{Hasher128, SipHasher13};

pub use tools::{MissingTools, Tools};

/// Linear memory of a guest in WebAssembly, bytes: stack, variables, and an inaccessible 64 KiB.
const MEMORY_BYTES: u32 = 64 << 20;
const STACK_BYTES: u32 = 128 << 10;
/// Most native stack of one function of a guest, bytes.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// Most parameters and results of a function that is called by pointer (`c/wasm.c`).
const SIGNATURE_MAX: usize = 32;

const SANDBOX_H: &str = include_str!("../c/sandbox.h");
const WASM_C: &str = include_str!("../c/wasm.c");
const NATIVE_C: &str = include_str!("../c/native.c");
const CHILD_C: &str = include_str!("../c/child.c");
/// Part of the cache key, because the code affects the result.
const LINES_RS: &str = include_str!("build/lines.rs");
const FREESTANDING_C: &str = include_str!("../c/freestanding.c");

/// Kind of sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SandboxKind {
    /// In this process, contained by WebAssembly.
    Wasm,
    /// In a process of its own, contained by the kernel. Needs a C compiler only.
    Process,
    /// In this process, without containment.
    Native,
}

impl std::fmt::Display for SandboxKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Wasm => "WebAssembly, compiled to machine code",
            Self::Process => "a process of its own",
            Self::Native => "native, not contained",
        })
    }
}

impl SandboxKind {
    /// Strongest kind for which this machine has the tools; never [`Self::Native`].
    pub fn best() -> Result<Self, MissingTools> {
        Tools::find(Self::Wasm).map(|_| Self::Wasm).or_else(|missing| match Tools::find(Self::Process) {
            Ok(_) => Ok(Self::Process),
            Err(_) => Err(missing),
        })
    }
}

/// Source text of a guest.
#[derive(Debug, Clone, Copy)]
pub struct GuestSource<'a> {
    /// C text, with `#line` directives for text from other files.
    pub text: &'a str,
}

/// Built guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltGuest {
    /// Kind of sandbox that the guest was built for.
    pub kind: SandboxKind,
    /// Library or program.
    pub file: PathBuf,
}

/// Message of a compiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerMessage {
    /// File, line and column, from 1, if the compiler reported them.
    pub at: Option<(String, u32, u32)>,
    /// Text of the message, one line.
    pub text: String,
}

impl std::fmt::Display for CompilerMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            Some((file, line, column)) => write!(f, "{file}:{line}:{column}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Error of a build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestBuildError {
    /// Tools are missing.
    #[error(transparent)]
    MissingTools(#[from] MissingTools),
    /// The C text does not compile.
    #[error("the handler's C does not compile: {}", first(.0))]
    Compile(Vec<CompilerMessage>),
    /// A step after the guest's own compiler failed.
    #[error("{tool} failed on the handler: {message}")]
    Step {
        /// Name of the tool.
        tool: String,
        /// Message of the tool.
        message: String,
    },
    /// A file could not be written or read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

fn first(messages: &[CompilerMessage]) -> String {
    let first = messages.first().map(ToString::to_string).unwrap_or_default();
    if messages.len() > 1 { format!("{first} (and {} more)", messages.len() - 1) } else { first }
}

/// Builds a guest for a kind of sandbox, or finds it in `cache`.
pub fn build(kind: SandboxKind, source: GuestSource<'_>, cache: &Path) -> Result<BuiltGuest, GuestBuildError> {
    let tools = Tools::find(kind)?;
    let file = |dir: &Path| dir.join(if kind == SandboxKind::Process { "guest" } else { "guest.so" });
    let place = cache.join(name(kind, source, &tools));
    if file(&place).exists() {
        return Ok(BuiltGuest { kind, file: file(&place) });
    }
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = format!("new-{}-{}", std::process::id(), TURN.fetch_add(1, Ordering::Relaxed));
    let work = BuildDir { dir: cache.join(turn) };
    create_private_dir(cache)?;
    fs::create_dir(&work.dir).map_err(|error| GuestBuildError::File { path: work.dir.clone(), error })?;
    work.write("guest.c", source.text)?;
    match kind {
        SandboxKind::Wasm => work.wasm(&tools)?,
        SandboxKind::Native => work.native(&tools)?,
        SandboxKind::Process => work.process(&tools)?,
    }
    // Another process may have built the same guest first.
    if let Err(error) = fs::rename(&work.dir, &place)
        && !file(&place).exists()
    {
        return Err(GuestBuildError::File { path: place, error });
    }
    Ok(BuiltGuest { kind, file: file(&place) })
}

impl BuiltGuest {
    /// Source line `file:line` at the address of a [`Trap`](crate::Trap), if debug information and `addr2line`
    /// (Debian: binutils) are available.
    #[must_use]
    pub fn line(&self, at: u64) -> Option<String> {
        if at == 0 {
            return None;
        }
        let tool = tools::path_of(&["addr2line"])?;
        let output_text =
            Command::new(tool).args(["-i", "-e"]).arg(&self.file).arg(format!("{at:#x}")).output().ok()?;
        // From the innermost of the inlined functions outwards.
        String::from_utf8(output_text.stdout).ok()?.lines().find_map(|line| {
            let (file, line) = line.split(" (").next()?.rsplit_once(':')?;
            let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
            (!is_generated(file)).then(|| format!("{}:{line}", base(file)))
        })
    }
}

fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// Whether the file was generated, so that a position there is of no use: our own files, and names in angle brackets.
fn is_generated(file: &str) -> bool {
    let file = base(file);
    let generated = ["guest.c", "guest.h", "wasm.c", "native.c", "child.c", "sandbox.h", "freestanding.c", "??"];
    generated.contains(&file) || file.starts_with('<')
}

/// Temporary directory of a build, removed when dropped.
struct BuildDir {
    dir: PathBuf,
}

impl Drop for BuildDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl BuildDir {
    fn wasm(&self, tools: &Tools) -> Result<(), GuestBuildError> {
        self.write("freestanding.c", FREESTANDING_C)?;
        let clang = ["--target=wasm32-unknown-unknown", "-mcpu=mvp", "-mbulk-memory", "-O2", "-std=gnu11", "-g"];
        let clang = [&clang[..], &GUEST_FLAGS, &["-c"]].concat();
        self.run(&tools.clang, &[&clang[..], &["guest.c", "-o", "guest.o"]].concat(), true)?;
        let freestanding = [&clang[..], &["-fno-builtin", "freestanding.c", "-o", "freestanding.o"]].concat();
        self.run(&tools.clang, &freestanding, false)?;
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
        self.write("guest.c", &checked_c(&text, &wasm)?)?;
        self.write("sandbox.h", SANDBOX_H)?;
        self.write("wasm.c", WASM_C)?;
        let frame = format!("-Werror=frame-larger-than={FRAME_BYTES_MAX}");
        let include = format!("-I{}", tools.include.display());
        let cc = ["-O2", "-g1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-fvisibility=hidden", "-w", &frame, &include];
        // Every trap keeps its own address.
        let separate_traps = ["-fno-crossjumping", "-fno-tree-tail-merge", BIND_NOW];
        let cc = [&cc[..], &separate_traps, &["-fno-math-errno", "wasm.c", "-o", "guest.so", "-lm"]].concat();
        self.run(&tools.cc, &cc, false)
    }

    fn native(&self, tools: &Tools) -> Result<(), GuestBuildError> {
        self.write("sandbox.h", SANDBOX_H)?;
        self.write("native.c", NATIVE_C)?;
        let cc = ["-O2", "-std=gnu11", "-g1", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-fvisibility=hidden"];
        let cc = [&cc[..], &GUEST_FLAGS, &["guest.c", "native.c", "-Wl,-z,defs", BIND_NOW, "-o", "guest.so", "-lm"]]
            .concat();
        self.run(&tools.cc, &cc, true)
    }

    fn process(&self, tools: &Tools) -> Result<(), GuestBuildError> {
        self.write("child.c", CHILD_C)?;
        self.write("freestanding.c", FREESTANDING_C)?;
        let flags =
            ["-O2", "-std=gnu11", "-fno-pie", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-ffreestanding", "-c"];
        let plain = ["-fno-builtin", "-fno-tree-loop-distribute-patterns", "freestanding.c", "-o", "freestanding.o"];
        self.run(&tools.cc, &[&flags[..], &plain].concat(), false)?;
        self.run(&tools.cc, &[&flags[..], &["child.c", "-o", "child.o"]].concat(), false)?;
        let guest = [&flags[..], &GUEST_FLAGS, &["-g1", "-fno-asynchronous-unwind-tables"]].concat();
        self.run(&tools.cc, &[&guest[..], &["guest.c", "-o", "guest.o"]].concat(), true)?;
        let link = ["-static", "-nostdlib", "-no-pie", "guest.o", "child.o", "freestanding.o", "-lgcc", "-o", "guest"];
        self.run(&tools.cc, &link, true)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), GuestBuildError> {
        fs::write(self.dir.join(name), text).map_err(|error| self.failed(name, error))
    }

    fn failed(&self, name: &str, error: io::Error) -> GuestBuildError {
        GuestBuildError::File { path: self.dir.join(name), error }
    }

    /// Runs a tool; its messages are the guest's compile errors if `of_guest`.
    fn run(&self, tool: &Path, args: &[&str], of_guest: bool) -> Result<(), GuestBuildError> {
        let output = Command::new(tool)
            .args(args)
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| GuestBuildError::File { path: tool.to_owned(), error })?;
        if output.status.success() {
            return Ok(());
        }
        let output_text = String::from_utf8_lossy(&output.stderr);
        let messages = if of_guest { messages(&output_text) } else { Vec::new() };
        if messages.is_empty() {
            let output_text = output_text.lines().find(|line| line.contains("error")).or(output_text.lines().next());
            let output_text = output_text.unwrap_or("no message").to_owned();
            return Err(GuestBuildError::Step { tool: tool.display().to_string(), message: output_text });
        }
        Err(GuestBuildError::Compile(messages))
    }
}

/// Linker flag that resolves all symbols at load time: the signal handler calls `_longjmp` and may interrupt any call,
/// and lazy resolution needs too much stack for it and must not be interrupted.
const BIND_NOW: &str = "-Wl,-z,now";

/// Flags for the guest's own text. Certain errors in C that compilers only warn of are errors here.
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

/// Checks the C text of wasm2c, and adds line numbers and a stack check in each function; refuses text that does not
/// have the form that `c/wasm.c` expects.
fn checked_c(text: &str, wasm: &[u8]) -> Result<String, GuestBuildError> {
    let unknown = |output_text: String| GuestBuildError::Step { tool: "wasm2c".into(), message: output_text };
    if !text.contains("Z_guestZ_pc_enter") || !text.contains(lines::PROLOGUE) {
        return Err(unknown("the C text has another form than that of wabt 1.0.32 (Debian 12)".into()));
    }
    let wide =
        |line: &&str| line.contains("wasm_rt_register_func_type(") && line.matches("WASM_RT_").count() > SIGNATURE_MAX;
    if let Some(line) = text.lines().find(wide) {
        return Err(unknown(format!("a function has more than {SIGNATURE_MAX} parameters: {}", line.trim())));
    }
    // Code of a step has to be attributed to its line, not to a helper function.
    let text = text.replace("static inline ", "static inline __attribute__((always_inline)) ");
    Ok(lines::with_lines(wasm, &text).replace(lines::PROLOGUE, "PC_ENTER"))
}

/// Errors in the output of a compiler or linker.
fn messages(output_text: &str) -> Vec<CompilerMessage> {
    let mut messages = Vec::new();
    for line in output_text.lines() {
        let undefined = ["undefined symbol: ", "undefined reference to "]
            .into_iter()
            .find_map(|words| line.split_once(words).map(|(_, name)| name.trim_matches(['`', '\''])));
        if let Some(name) = undefined {
            let text = format!("undefined symbol `{name}`: a handler has no libc, only the functions of its header");
            if !messages.iter().any(|known: &CompilerMessage| known.text == text) {
                messages.push(CompilerMessage { at: None, text });
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
        messages.push(CompilerMessage { at, text: text.to_owned() });
    }
    messages
}

/// Cache name that changes with everything that goes into the result.
fn name(kind: SandboxKind, source: GuestSource<'_>, tools: &Tools) -> String {
    let mut hash = SipHasher13::new();
    hash.write_u8(kind as u8);
    for text in [source.text, SANDBOX_H, WASM_C, NATIVE_C, CHILD_C, FREESTANDING_C, include_str!("build.rs"), LINES_RS]
    {
        hash.write_usize(text.len());
        hash.write(text.as_bytes());
    }
    tools.identify(&mut hash);
    format!("{:032x}", hash.finish128().as_u128())
}

/// Creates a directory that no other user may write to, because code in it is executed.
fn create_private_dir(dir: &Path) -> Result<(), GuestBuildError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| GuestBuildError::File { path: dir.to_owned(), error })
}
