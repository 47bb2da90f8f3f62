//! The clock of guests in this process, and the signals that end their calls.
//!
//! ```text
//! watcher (one thread) ── every POLL: is a call older than its limit? ─► SIGURG to its thread ─┐
//! guest's fault ─► SIGSEGV, SIGBUS, SIGFPE, SIGILL ──────────────────────────────────────────┴─► in the guest: leave it
//! ```
//!
//! What counts is the processor's time of the thread, so that a busy machine ends no call. A signal that comes late, when
//! its call has ended or has turned to the host, does nothing, or is kept until the host returns; one that concerns no
//! guest goes on to whoever had it before.
//!
//! A thread's stack for signals has room for two frames of the kernel's at most (3.6 KB each where there is AVX-512, of
//! 8 KiB), so none comes on top of ours: all signals wait until the call has been left.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::room::{GUEST, HOST, INSIDE, Inside, RawRoom};

/// How often the watcher looks: a call that is over its limit is left at most so much later, if it looks in time.
const POLL: Duration = Duration::from_millis(5);
/// Ignored by default, so a stray one harms nobody.
const OVER: libc::c_int = libc::SIGURG;
const FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// One room's calls.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Odd while a call is on.
    call: AtomicU64,
    /// The thread that it is on.
    thread: AtomicI32,
    /// The call that is to end.
    over: AtomicU64,
    limit: Duration,
}

impl Watch {
    #[inline]
    pub(crate) fn begin(&self) {
        thread_local!(static THREAD: libc::pid_t = thread_id());
        self.thread.store(THREAD.with(|thread| *thread), Ordering::Relaxed);
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

/// Watches a room's calls from now on, for as long as the watch is kept.
pub(crate) fn register(limit: Duration) -> Arc<Watch> {
    let none = u64::MAX - 1;
    let watch = Arc::new(Watch { call: 0.into(), thread: 0.into(), over: none.into(), limit });
    static WATCHER: OnceLock<std::thread::Thread> = OnceLock::new();
    watched().push(Seen { watch: Arc::downgrade(&watch), call: 0, taken: Taken::from(Duration::ZERO) });
    WATCHER
        .get_or_init(|| {
            let thread = std::thread::Builder::new().name("handler-watch".into()).spawn(look);
            thread.expect("a thread for the watcher").thread().clone()
        })
        .unpark();
    watch
}

/// What the watcher saw of a room last.
struct Seen {
    watch: Weak<Watch>,
    call: u64,
    /// What that call has taken.
    taken: Taken,
}

/// The processor's time that a call has taken. Of the time between two looks no more counts than [`STEP_MAX`]: where the
/// machine itself stands still, or is not given its processors, its clocks go on, also that of whoever was running.
#[derive(Debug)]
pub(crate) struct Taken {
    seen: Duration,
    taken: Duration,
}

/// What counts of the time between two looks, at most: less than any limit that makes sense.
const STEP_MAX: Duration = POLL.saturating_mul(2);

impl Taken {
    /// By a call that begins when the clock says this.
    pub(crate) fn from(spent: Duration) -> Self {
        Self { seen: spent, taken: Duration::ZERO }
    }

    /// What it has taken when the clock says this.
    pub(crate) fn look(&mut self, spent: Duration) -> Duration {
        self.taken += spent.saturating_sub(self.seen).min(STEP_MAX);
        self.seen = spent;
        self.taken
    }
}

fn watched() -> std::sync::MutexGuard<'static, Vec<Seen>> {
    static WATCHED: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watcher's thread.
fn look() {
    loop {
        let none = {
            let mut rooms = watched();
            rooms.retain_mut(look_at);
            rooms.is_empty()
        };
        // A room that comes meanwhile has its `unpark` remembered.
        if none { std::thread::park() } else { std::thread::park_timeout(POLL) }
    }
}

/// Looks at one room; false if it is gone.
fn look_at(seen: &mut Seen) -> bool {
    let Some(watch) = seen.watch.upgrade() else { return false };
    let call = watch.call.load(Ordering::Acquire);
    if call % 2 == 0 {
        return true;
    }
    let thread = watch.thread.load(Ordering::Relaxed);
    let Some(spent) = thread_time(thread) else { return true };
    if seen.call != call {
        (seen.call, seen.taken) = (call, Taken::from(spent));
    } else if seen.taken.look(spent) >= watch.limit {
        watch.over.store(call, Ordering::Release);
        // SAFETY: a signal to a thread of this process that does nothing unless that thread is in this very call.
        #[allow(unsafe_code, reason = "the call is the kernel's")]
        unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, OVER);
        }
    }
    true
}

/// The processor's time that a thread of this process has taken; none if it is gone.
fn thread_time(thread: libc::pid_t) -> Option<Duration> {
    // The clock of a thread: its number, complemented, then 2 (scheduler's time) and 4 (of a thread).
    clock((!thread) << 3 | 6)
}

/// The same of a whole process.
pub(crate) fn process_time(process: u32) -> Option<Duration> {
    clock((!(process as libc::pid_t)) << 3 | 2)
}

fn clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is written to, if anything is.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn thread_id() -> libc::pid_t {
    // SAFETY: it takes nothing and only returns a number.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    unsafe {
        libc::gettid()
    }
}

/// What had the signals before.
struct Former([OnceLock<libc::sigaction>; 5]);

static FORMER: Former = Former([const { OnceLock::new() }; 5]);

/// Takes the signals, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, former) in FAULTS.into_iter().chain([OVER]).zip(&FORMER.0) {
            // SAFETY: the handler touches only what a signal may (see there); SA_ONSTACK lets it run where the stack has
            // ended. All signals wait meanwhile: `release` lets them come again where it was left by a jump.
            #[allow(unsafe_code, reason = "a handler for signals is set")]
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut before: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigfillset(&raw mut action.sa_mask);
                libc::sigaction(signal, std::ptr::null(), &raw mut before);
                let _ = former.set(before);
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    });
}

thread_local! {
    /// Which signals waited where a guest was left by a signal's handler, until `release`.
    static WAITING: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// Has the thread's signals come again, after a guest was left: the jump out of a handler leaves them waiting.
pub(crate) fn release() {
    if let Some(waiting) = WAITING.take() {
        // SAFETY: the set is what the kernel gave the handler.
        #[allow(unsafe_code, reason = "the call is the kernel's")]
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const waiting, std::ptr::null_mut());
        }
    }
}

/// Leaves the guest whose fault or end this is. It reads and writes atomics and the thread's own cell, and calls nothing
/// but the jump out (`pc_leave`), for which this frame holds nothing that would have to be dropped.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let inside = INSIDE.with(|inside| inside.load(Ordering::Acquire));
    if !inside.is_null() {
        // SAFETY: `Room::enter` put it there and takes it away before it returns, and it is on this thread's stack.
        // `info` and `context` are the kernel's.
        #[allow(unsafe_code, reason = "a signal tells what was going on")]
        unsafe {
            let Inside { room, watch } = *inside;
            let inside = (*room).inside.load(Ordering::Relaxed);
            if signal == OVER {
                let meant = (*watch).over.load(Ordering::Acquire) == (*watch).call.load(Ordering::Relaxed);
                match inside {
                    GUEST if meant => leave(room, context, 8),
                    HOST if meant => (*room).stop.store(1, Ordering::Relaxed),
                    _ => {}
                }
            } else if inside == GUEST {
                let from = ((*info).si_addr() as usize).wrapping_sub((*room).guard as usize);
                let bytes = (*room).guard_bytes;
                if bytes == 0 || (from as u64) < bytes || matches!(signal, libc::SIGFPE | libc::SIGILL) {
                    leave(room, context, number(signal));
                }
            }
        }
    }
    pass_on(signal, info, context);
}

/// Jumps out of the guest of `room`, and of the handler.
///
/// # Safety
///
/// This thread is in that guest, and `context` is what the kernel gave the handler.
#[allow(unsafe_code, reason = "a signal's context is read, and its handler left")]
unsafe fn leave(room: *mut RawRoom, context: *mut c_void, trap: u32) {
    // SAFETY: as above.
    unsafe {
        (*room).at = program_counter(context);
        WAITING.set(Some((*context.cast::<libc::ucontext_t>()).uc_sigmask));
        ((*room).leave)(room, trap);
    }
}

/// The numbers of `room.h`.
fn number(signal: libc::c_int) -> u32 {
    match signal {
        libc::SIGFPE => 2,
        libc::SIGILL => 5,
        _ => 1,
    }
}

fn program_counter(context: *mut c_void) -> usize {
    // SAFETY: the kernel gives a `ucontext_t` to handlers with SA_SIGINFO.
    #[allow(unsafe_code, reason = "the interrupted code is named by its registers")]
    unsafe {
        let machine = &(*context.cast::<libc::ucontext_t>()).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        return machine.gregs[libc::REG_RIP as usize] as usize;
        #[cfg(target_arch = "aarch64")]
        return machine.pc as usize;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let _ = machine;
            return 0;
        }
    }
}

/// Does what would have been done without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = FAULTS.iter().position(|fault| *fault == signal).unwrap_or(FAULTS.len());
    let Some(former) = FORMER.0[place].get() else { return };
    match former.sa_sigaction {
        // Ignored by default.
        libc::SIG_DFL if signal == OVER => {}
        libc::SIG_IGN => {}
        // SAFETY: the former action comes back, and the fault with it.
        #[allow(unsafe_code, reason = "the default action can't be called, only set")]
        libc::SIG_DFL => unsafe {
            libc::sigaction(signal, former, std::ptr::null_mut());
        },
        // SAFETY: it was set as a handler of this kind.
        #[allow(unsafe_code, reason = "the former handler is a bare address")]
        handler => unsafe {
            if former.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stands_still_takes_no_limit_from_a_call() {
        let at = Duration::from_millis;
        let mut taken = Taken::from(at(100));
        assert_eq!(taken.look(at(105)), at(5));
        // Two seconds within one look.
        assert_eq!(taken.look(at(2105)), at(5) + STEP_MAX);
        assert_eq!(taken.look(at(2105)), at(5) + STEP_MAX);
        assert_eq!(taken.look(at(2110)), at(10) + STEP_MAX);
    }
}
