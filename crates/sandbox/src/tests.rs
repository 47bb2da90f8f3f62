//! Tests of guests that break every rule, in each kind of sandbox: the call ends with the right reason, and the host
//! continues.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

const GUEST: &str = r#"
#include <stdint.h>
#include <stddef.h>
#ifdef __wasm__
__attribute__((import_module("env"), import_name("pc_host")))
#endif
uint64_t pc_host(uint32_t op, uint32_t which, const void *in, uint32_t in_bytes, void *out, uint32_t out_bytes,
                 uint64_t value);
static struct { uint32_t in, out; uint8_t rest[56]; } area;
const uint32_t pc_area_bytes = sizeof area;
void *pc_area(void) { return &area; }
static uint32_t calls;
static volatile uint32_t zero;
static volatile uint32_t small[4];
static int (*volatile chosen)(int);
static int depth(int n) { volatile char frame[300]; frame[n % 300] = 1; return n ? depth(n - 1) + frame[n % 300] : 0; }
static void wrong(int a, double b) { area.out = a + (int)b; }
#line 100 "guest.p4c"
void pc_enter(uint32_t entry, uint32_t argument)
{
    calls++;
    switch (entry) {
    case 0: area.out = area.in + argument; break;
    case 1: small[argument] = 1; break;
    case 2: area.out = 7 / (zero * argument); break;
    case 3: *(volatile int *)(uintptr_t)(zero * argument) = 1; break;
    case 4: __builtin_trap();
    case 5: area.out = (uint32_t)depth((int)argument); break;
    case 6: for (;;) { __asm__ volatile(""); }
    case 7: chosen = (int (*)(int))(uintptr_t)wrong; area.out = (uint32_t)chosen(1); break;
    case 8: area.out = calls; break;
    case 9: area.out = (uint32_t)pc_host(3, 4, &area.in, 4, &area.rest, 4, 5); break;
    case 10: pc_host(0, 0, (void *)(uintptr_t)4096, 4, &area.rest, 4, 0); break;
    case 11: pc_host(0, 0, 0, 0, (char *)0 - 64, 128, 0); break;
    case 12: for (;;) pc_host(0, 0, 0, 0, 0, 0, 0);
    case 13: pc_host(0, 0, &area, 1025, 0, 0, 0); break;
    }
}
"#;

/// Host that answers with sums, and counts the calls.
#[derive(Default)]
struct Counting(u32);

impl Host for Counting {
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64 {
        self.0 += 1;
        output.fill(input.iter().copied().fold(0, u8::wrapping_add));
        u64::from(op) + u64::from(which) + value
    }
}

/// Cache directory beside this test program, so that builds are reused.
fn cache() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.ancestors().nth(3).expect("a target directory").join("tmp/guests")
}

fn built(kind: SandboxKind) -> Option<BuiltGuest> {
    match build(kind, GuestSource { text: GUEST }, &cache()) {
        Ok(built) => Some(built),
        Err(GuestBuildError::MissingTools(missing)) => {
            assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{missing}");
            eprintln!("skipped: {kind:?}: {missing}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(built: &BuiltGuest) -> Guest {
    Guest::open(built, 64, LIMIT).expect("a guest")
}

fn word(guest: &mut Guest, at: usize) -> u32 {
    u32::from_le_bytes(guest.area()[at..at + 4].try_into().unwrap())
}

/// Checks that the guest works, and that its memory is fresh.
fn is_well(guest: &mut Guest, calls: u32) {
    let mut host = Counting::default();
    guest.area()[..4].copy_from_slice(&40u32.to_le_bytes());
    guest.enter(0, 2, &mut host).expect("a sum");
    assert_eq!(word(guest, 4), 42);
    guest.enter(8, 0, &mut host).expect("a count");
    assert_eq!(word(guest, 4), calls, "fresh memory");
}

fn trapped(guest: &mut Guest, built: &BuiltGuest, entry: u32, argument: u32) -> (TrapReason, Option<String>) {
    let trap = guest.enter(entry, argument, &mut Counting::default());
    let trap = trap.expect_err(&format!("entry {entry}: a trap"));
    guest.restart().expect("a restart");
    is_well(guest, 2);
    (trap.reason, built.line(trap.at))
}

fn answers(guest: &mut Guest) {
    let mut host = Counting::default();
    guest.area()[..4].copy_from_slice(&[1, 2, 3, 4]);
    guest.enter(9, 0, &mut host).expect("an answer");
    assert_eq!((word(guest, 4), word(guest, 8), host.0), (12, 0x0a0a_0a0a, 1));
}

#[test]
fn wasm_guest_traps_with_reason_and_line() {
    let Some(built) = built(SandboxKind::Wasm) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 28, TrapReason::Bounds, 105),
        (2, 1, TrapReason::Divide, 106),
        (3, 1, TrapReason::Bounds, 107),
        (4, 0, TrapReason::Unreachable, 108),
        (5, 100_000_000, TrapReason::Bounds, 0),
        (6, 0, TrapReason::Time, 110),
        (7, 0, TrapReason::Indirect, 111),
        (10, 0, TrapReason::Bounds, 114),
        (11, 0, TrapReason::Bounds, 115),
        (12, 0, TrapReason::Time, 116),
        (13, 0, TrapReason::Bounds, 117),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert!(got == reason || (entry == 5 && got == TrapReason::Stack), "entry {entry}: {got:?}, not {reason:?}");
        // On the way between guest and host there is no source line.
        if line > 0 && (entry != 12 || at.is_some()) {
            assert_eq!(at, Some(format!("guest.p4c:{line}")), "entry {entry}");
        }
    }
}

#[test]
fn process_guest_traps_with_reason_and_line() {
    let Some(built) = built(SandboxKind::Process) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 30, TrapReason::Bounds, Some("guest.p4c:105")),
        (2, 1, TrapReason::Divide, Some("guest.p4c:106")),
        (3, 1, TrapReason::Bounds, Some("guest.p4c:107")),
        (4, 0, TrapReason::Unreachable, Some("guest.p4c:108")),
        (5, 100_000_000, TrapReason::Bounds, None),
        (6, 0, TrapReason::Time, None),
        (11, 0, TrapReason::Bounds, None),
        (12, 0, TrapReason::Time, None),
        (13, 0, TrapReason::Unreachable, None),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert_eq!(got, reason, "entry {entry}");
        if let Some(line) = line {
            assert_eq!(at.as_deref(), Some(line), "entry {entry}");
        }
    }
}

#[test]
fn native_guest_traps_on_fault_or_endless_loop() {
    let Some(built) = built(SandboxKind::Native) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 30, TrapReason::Bounds, 105),
        (2, 1, TrapReason::Divide, 106),
        (3, 1, TrapReason::Bounds, 107),
        (4, 0, TrapReason::Unreachable, 108),
        (5, 100_000_000, TrapReason::Bounds, 0),
        (6, 0, TrapReason::Time, 110),
        (12, 0, TrapReason::Time, 0),
        (13, 0, TrapReason::Bounds, 0),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert_eq!(got, reason, "entry {entry}");
        if line > 0 {
            assert_eq!(at, Some(format!("guest.p4c:{line}")), "entry {entry}");
        }
    }
}

/// Several guests on several threads, some of which loop: the end of one call does not affect the others.
#[test]
fn time_limit_ends_only_the_looping_thread() {
    for kind in [SandboxKind::Wasm, SandboxKind::Native] {
        let Some(built) = built(kind) else { continue };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let built = &built;
                scope.spawn(move || {
                    let mut guest = open(built);
                    for round in 0..5u32 {
                        if thread % 2 == 0 {
                            assert_eq!(trapped(&mut guest, built, 6, 0).0, TrapReason::Time);
                        } else {
                            for step in 0..20_000 {
                                guest.area()[..4].copy_from_slice(&(round + step).to_le_bytes());
                                guest.enter(0, 1, &mut Counting::default()).expect("no trap by the other guest");
                                assert_eq!(word(&mut guest, 4), round + step + 1);
                            }
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn guest_instances_share_no_memory() {
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        let Some(built) = built(kind) else { continue };
        let (mut one, mut other) = (open(&built), open(&built));
        is_well(&mut one, 2);
        is_well(&mut one, 4);
        is_well(&mut other, 2);
    }
}

#[test]
fn compile_errors_name_their_position() {
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let wrong = GUEST.replace("area.out = calls", "area.aut = calls");
        let Err(GuestBuildError::Compile(messages)) = build(kind, GuestSource { text: &wrong }, &cache()) else {
            panic!("a compile error was expected")
        };
        let (file, line, _) = messages[0].at.clone().expect("a position");
        assert_eq!((file.as_str(), line, messages.len()), ("guest.p4c", 112, 1), "{messages:?}");
        assert!(messages[0].text.contains("aut"), "{messages:?}");
        let missing = GUEST.replace("area.out = calls", "{ extern int nowhere(int); area.out = nowhere(1); }");
        let Err(GuestBuildError::Compile(messages)) = build(kind, GuestSource { text: &missing }, &cache()) else {
            panic!("a link error was expected")
        };
        assert!(messages.iter().any(|m| m.text.contains("undefined symbol `nowhere`")), "{kind:?}: {messages:?}");
    }
}

/// A guest without host calls.
#[test]
fn guest_without_host_calls_runs() {
    let text = "#include <stdint.h>\nstatic uint32_t area[16]; const uint32_t pc_area_bytes = sizeof area;
        void *pc_area(void) { return area; } void pc_enter(uint32_t a, uint32_t b) { area[0] = a + b; }";
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let mut guest = open(&build(kind, GuestSource { text }, &cache()).expect("a build without host calls"));
        guest.enter(3, 4, &mut Counting::default()).expect("a sum");
        assert_eq!(word(&mut guest, 0), 7);
    }
}

/// File names in the guest's `#line` directives appear in C that is compiled for the host.
#[test]
fn c_code_in_line_directive_does_not_reach_host() {
    // A name with `\`, a line break and `"` that would set `PC=1` by the host's libc.
    let name = r#""x\\\n\"\n{ int setenv(const char *, const char *, int); setenv((char[]){80,67,0}, (char[]){49,0}, 1); }\n#define PC""#;
    let text = GUEST.replace("#line 100 \"guest.p4c\"", &format!("#line 100 {name}"));
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let mut guest = open(&build(kind, GuestSource { text: &text }, &cache()).expect("C with a strange name"));
        is_well(&mut guest, 2);
        assert_eq!(std::env::var_os("PC"), None, "{kind:?}: the name was executed in the host");
    }
}

#[test]
fn time_limit_is_of_cpu_time() {
    let Some(built) = built(SandboxKind::Wasm) else { return };
    let mut guest = Guest::open(&built, 64, Duration::from_millis(40)).expect("a guest");
    let started = std::time::Instant::now();
    assert_eq!(trapped(&mut guest, &built, 6, 0).0, TrapReason::Time);
    assert!(started.elapsed() >= Duration::from_millis(40));
}

/// The time limit also applies to a guest that only makes host calls, which are answered at once.
#[test]
fn time_limit_applies_to_endless_host_calls() {
    for kind in [SandboxKind::Wasm, SandboxKind::Process, SandboxKind::Native] {
        let Some(built) = built(kind) else { continue };
        let (mut guest, mut host) = (open(&built), Counting::default());
        let trap = guest.enter(12, 0, &mut host).expect_err("a trap");
        assert_eq!(trap.reason, TrapReason::Time, "{kind:?}");
        // A process needs two system calls per host call, at least 200 ns each.
        assert!(kind != SandboxKind::Process || host.0 <= 100_000, "{} answers in {LIMIT:?}", host.0);
    }
}

/// Runs `calls` while this thread receives the watcher's signal, `at_once` times per burst, with a pause of `apart`.
fn with_signal_bursts(at_once: usize, pause: Duration, calls: impl FnOnce()) {
    // SAFETY: the function has no arguments and only returns a number.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    let thread = unsafe { libc::gettid() };
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                for _ in 0..at_once {
                    // SAFETY: the signal goes to a thread of this process, and is ignored unless it ends a guest's
                    // call.
                    #[allow(unsafe_code, reason = "the call is the kernel's")]
                    unsafe {
                        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG);
                    }
                }
                let burst_end = Instant::now();
                while burst_end.elapsed() < pause {
                    std::hint::spin_loop();
                }
            }
        });
        let _until_here = done;
        calls();
    });
}

/// Bursts of the watcher's signal: calls return, and endless loops are ended, as without bursts. Between bursts the
/// guest gets time to run, which an endless stream of signals would take from its limit.
#[test]
fn bursts_of_signals_do_not_affect_sandboxed_calls() {
    for kind in [SandboxKind::Wasm, SandboxKind::Native] {
        let Some(built) = built(kind) else { continue };
        let mut guest = open(&built);
        with_signal_bursts(20, Duration::from_micros(50), || {
            for _ in 0..20 {
                assert_eq!(trapped(&mut guest, &built, 6, 0).0, TrapReason::Time, "{kind:?}");
                for step in 0..1000u32 {
                    guest.area()[..4].copy_from_slice(&step.to_le_bytes());
                    guest.enter(0, 1, &mut Counting::default()).expect("no trap");
                    assert_eq!(word(&mut guest, 4), step + 1);
                }
            }
        });
    }
}

/// Signals that arrive while the thread enters or leaves a guest.
#[test]
fn signals_at_entry_and_exit_do_not_affect_calls() {
    for kind in [SandboxKind::Wasm, SandboxKind::Native] {
        let Some(built) = built(kind) else { continue };
        let mut guest = open(&built);
        with_signal_bursts(1, Duration::from_micros(5), || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(500) {
                for _ in 0..100 {
                    guest.enter(0, 1, &mut Counting::default()).expect("no trap");
                }
            }
        });
    }
}
