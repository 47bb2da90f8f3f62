//! Guests that do everything a guest may not, in each room: the call ends with its reason, the host goes on.

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

/// Answers with sums, and counts.
#[derive(Default)]
struct Counting(u32);

impl Host for Counting {
    fn call(&mut self, op: u32, which: u32, input: &[u8], output: &mut [u8], value: u64) -> u64 {
        self.0 += 1;
        output.fill(input.iter().copied().fold(0, u8::wrapping_add));
        u64::from(op) + u64::from(which) + value
    }
}

/// Beside the folder of this program, where what was built once stays.
fn cache() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.ancestors().nth(3).expect("a folder of targets").join("tmp/guests")
}

fn built(kind: Kind) -> Option<Built> {
    match build(kind, Source { text: GUEST }, &cache()) {
        Ok(built) => Some(built),
        Err(BuildError::Lacking(lacking)) => {
            assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{lacking}");
            eprintln!("skipped: {kind:?}: {lacking}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(built: &Built) -> Guest {
    Guest::open(built, 64, LIMIT).expect("a guest")
}

fn word(guest: &mut Guest, at: usize) -> u32 {
    u32::from_le_bytes(guest.area()[at..at + 4].try_into().unwrap())
}

/// A call that works shows that the guest is well.
fn is_well(guest: &mut Guest, calls: u32) {
    let mut host = Counting::default();
    guest.area()[..4].copy_from_slice(&40u32.to_le_bytes());
    guest.enter(0, 2, &mut host).expect("it adds");
    assert_eq!(word(guest, 4), 42);
    guest.enter(8, 0, &mut host).expect("it counts");
    assert_eq!(word(guest, 4), calls, "its memory is fresh");
}

fn trapped(guest: &mut Guest, built: &Built, entry: u32, argument: u32) -> (Reason, Option<String>) {
    let trap = guest.enter(entry, argument, &mut Counting::default());
    let trap = trap.expect_err(&format!("entry {entry}: a trap"));
    guest.restart().expect("a fresh one");
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
fn a_guest_in_wasm_is_left_with_the_reason_and_the_line() {
    let Some(built) = built(Kind::Wasm) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 28, Reason::Bounds, 105),
        (2, 1, Reason::Divide, 106),
        (3, 1, Reason::Bounds, 107),
        (4, 0, Reason::Unreachable, 108),
        (5, 100_000_000, Reason::Bounds, 0),
        (6, 0, Reason::Time, 110),
        (7, 0, Reason::Indirect, 111),
        (10, 0, Reason::Bounds, 114),
        (11, 0, Reason::Bounds, 115),
        (12, 0, Reason::Time, 116),
        (13, 0, Reason::Bounds, 117),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert!(got == reason || (entry == 5 && got == Reason::Stack), "entry {entry}: {got:?}, not {reason:?}");
        // Between guest and host there is no line.
        if line > 0 && (entry != 12 || at.is_some()) {
            assert_eq!(at, Some(format!("guest.p4c:{line}")), "entry {entry}");
        }
    }
}

#[test]
fn a_guest_in_a_process_is_left_with_the_reason_and_the_line() {
    let Some(built) = built(Kind::Process) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 30, Reason::Bounds, Some("guest.p4c:105")),
        (2, 1, Reason::Divide, Some("guest.p4c:106")),
        (3, 1, Reason::Bounds, Some("guest.p4c:107")),
        (4, 0, Reason::Unreachable, Some("guest.p4c:108")),
        (5, 100_000_000, Reason::Bounds, None),
        (6, 0, Reason::Time, None),
        (11, 0, Reason::Bounds, None),
        (12, 0, Reason::Time, None),
        (13, 0, Reason::Unreachable, None),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert_eq!(got, reason, "entry {entry}");
        if let Some(line) = line {
            assert_eq!(at.as_deref(), Some(line), "entry {entry}");
        }
    }
}

#[test]
fn a_native_guest_that_faults_or_loops_ends_its_call() {
    let Some(built) = built(Kind::Native) else { return };
    let mut guest = open(&built);
    is_well(&mut guest, 2);
    answers(&mut guest);
    for (entry, argument, reason, line) in [
        (1, 1 << 30, Reason::Bounds, 105),
        (2, 1, Reason::Divide, 106),
        (3, 1, Reason::Bounds, 107),
        (4, 0, Reason::Unreachable, 108),
        (5, 100_000_000, Reason::Bounds, 0),
        (6, 0, Reason::Time, 110),
        (12, 0, Reason::Time, 0),
        (13, 0, Reason::Bounds, 0),
    ] {
        let (got, at) = trapped(&mut guest, &built, entry, argument);
        assert_eq!(got, reason, "entry {entry}");
        if line > 0 {
            assert_eq!(at, Some(format!("guest.p4c:{line}")), "entry {entry}");
        }
    }
}

/// Several guests on several threads, some of which loop: none ends another's call.
#[test]
fn a_loop_on_one_thread_ends_on_that_thread_alone() {
    for kind in [Kind::Wasm, Kind::Native] {
        let Some(built) = built(kind) else { continue };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let built = &built;
                scope.spawn(move || {
                    let mut guest = open(built);
                    for round in 0..5u32 {
                        if thread % 2 == 0 {
                            assert_eq!(trapped(&mut guest, built, 6, 0).0, Reason::Time);
                        } else {
                            for step in 0..20_000 {
                                guest.area()[..4].copy_from_slice(&(round + step).to_le_bytes());
                                guest.enter(0, 1, &mut Counting::default()).expect("no trap of another's");
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
fn instances_share_no_memory() {
    for kind in [Kind::Wasm, Kind::Process, Kind::Native] {
        let Some(built) = built(kind) else { continue };
        let (mut one, mut other) = (open(&built), open(&built));
        is_well(&mut one, 2);
        is_well(&mut one, 4);
        is_well(&mut other, 2);
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for kind in [Kind::Wasm, Kind::Process, Kind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let wrong = GUEST.replace("area.out = calls", "area.aut = calls");
        let Err(BuildError::Compile(messages)) = build(kind, Source { text: &wrong }, &cache()) else {
            panic!("it does not compile")
        };
        let (file, line, _) = messages[0].at.clone().expect("a place");
        assert_eq!((file.as_str(), line, messages.len()), ("guest.p4c", 112, 1), "{messages:?}");
        assert!(messages[0].text.contains("aut"), "{messages:?}");
        let lacking = GUEST.replace("area.out = calls", "{ extern int nowhere(int); area.out = nowhere(1); }");
        let Err(BuildError::Compile(messages)) = build(kind, Source { text: &lacking }, &cache()) else {
            panic!("it does not link")
        };
        assert!(messages.iter().any(|m| m.text.contains("`nowhere` is not there")), "{kind:?}: {messages:?}");
    }
}

/// A guest that asks its host for nothing.
#[test]
fn a_guest_may_be_alone() {
    let text = "#include <stdint.h>\nstatic uint32_t area[16]; const uint32_t pc_area_bytes = sizeof area;
        void *pc_area(void) { return area; } void pc_enter(uint32_t a, uint32_t b) { area[0] = a + b; }";
    for kind in [Kind::Wasm, Kind::Process, Kind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let mut guest = open(&build(kind, Source { text }, &cache()).expect("it needs nothing"));
        guest.enter(3, 4, &mut Counting::default()).expect("a sum");
        assert_eq!(word(&mut guest, 0), 7);
    }
}

/// The names that a guest gives to its lines come into C that is compiled for the host.
#[test]
fn a_name_of_a_line_is_no_code_of_the_hosts() {
    // With `\`, an end of line and `"` in it; it sets `PC=1` by the host's libc.
    let name = r#""x\\\n\"\n{ int setenv(const char *, const char *, int); setenv((char[]){80,67,0}, (char[]){49,0}, 1); }\n#define PC""#;
    let text = GUEST.replace("#line 100 \"guest.p4c\"", &format!("#line 100 {name}"));
    for kind in [Kind::Wasm, Kind::Process, Kind::Native] {
        if built(kind).is_none() {
            continue;
        }
        let mut guest = open(&build(kind, Source { text: &text }, &cache()).expect("C with a strange name"));
        is_well(&mut guest, 2);
        assert_eq!(std::env::var_os("PC"), None, "{kind:?}: it ran in the host");
    }
}

#[test]
fn a_limit_is_of_the_processors_time() {
    let Some(built) = built(Kind::Wasm) else { return };
    let mut guest = Guest::open(&built, 64, Duration::from_millis(40)).expect("a guest");
    let began = std::time::Instant::now();
    assert_eq!(trapped(&mut guest, &built, 6, 0).0, Reason::Time);
    assert!(began.elapsed() >= Duration::from_millis(40));
}

/// A guest whose host answers at once is never waited for: its time runs all the same.
#[test]
fn a_guest_that_never_stops_asking_has_its_time() {
    for kind in [Kind::Wasm, Kind::Process, Kind::Native] {
        let Some(built) = built(kind) else { continue };
        let (mut guest, mut host) = (open(&built), Counting::default());
        let trap = guest.enter(12, 0, &mut host).expect_err("it never returns");
        assert_eq!(trap.reason, Reason::Time, "{kind:?}");
        // Two system calls for each take a process at least 200 ns.
        assert!(kind != Kind::Process || host.0 <= 100_000, "{} answers in {LIMIT:?}", host.0);
    }
}

/// Runs `calls` while this thread gets the watcher's signal, `at_once` times and again `apart` later.
fn in_a_crowd(at_once: usize, apart: Duration, calls: impl FnOnce()) {
    // SAFETY: it takes nothing and only returns a number.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    let thread = unsafe { libc::gettid() };
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                for _ in 0..at_once {
                    // SAFETY: a signal to a thread of this process, ignored unless it ends a guest's call.
                    #[allow(unsafe_code, reason = "the call is the kernel's")]
                    unsafe {
                        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG);
                    }
                }
                let crowd = Instant::now();
                while crowd.elapsed() < apart {
                    std::hint::spin_loop();
                }
            }
        });
        let _until_here = done;
        calls();
    });
}

/// The watcher's signal, many at once and again and again: calls return, and those that loop are left, as ever. Between
/// crowds there is time for the guest to go on: signals without an end would take all of it, and its limit with that.
#[test]
fn signals_in_crowds_harm_nobody() {
    for kind in [Kind::Wasm, Kind::Native] {
        let Some(built) = built(kind) else { continue };
        let mut guest = open(&built);
        in_a_crowd(20, Duration::from_micros(50), || {
            for _ in 0..20 {
                assert_eq!(trapped(&mut guest, &built, 6, 0).0, Reason::Time, "{kind:?}");
                for step in 0..1000u32 {
                    guest.area()[..4].copy_from_slice(&step.to_le_bytes());
                    guest.enter(0, 1, &mut Counting::default()).expect("no trap");
                    assert_eq!(word(&mut guest, 4), step + 1);
                }
            }
        });
    }
}

/// One that comes while the thread is on its way into a guest, or out of it.
#[test]
fn signals_at_the_door_harm_nobody() {
    for kind in [Kind::Wasm, Kind::Native] {
        let Some(built) = built(kind) else { continue };
        let mut guest = open(&built);
        in_a_crowd(1, Duration::from_micros(5), || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(500) {
                for _ in 0..100 {
                    guest.enter(0, 1, &mut Counting::default()).expect("no trap");
                }
            }
        });
    }
}
