//! Time limits of guests in this process, and the signals that end their calls.
//!
//! ```text
//! watcher (one thread) ── every POLL: is a call older than its limit? ─► SIGURG to its thread ┐
//! guest's fault ─► SIGSEGV, SIGBUS, SIGFPE, SIGILL ─────────────────────────────────────────┴─► in the guest: leave
//! ```
//!
//! Limits are of the thread's CPU time, so that a busy machine ends no call. A signal that arrives after the end of its
//! call, or while the call is in the host, does nothing or is deferred until the host returns. A signal that concerns
//! no guest goes to the former handler.
//!
//! A thread's signal stack has room for at most two signal frames of the kernel (3.6 KB each with AVX-512, of 8 KiB),
//! so all signals are blocked until the call has been left.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::in_process::{CURRENT_GUEST, CurrentGuest, GUEST, HOST, RawSandbox};

/// Interval of the watcher's checks: a call over its limit ends at most this late.
const POLL: Duration = Duration::from_millis(5);
/// Signal of the watcher; ignored by default, so that a stray one is harmless.
const TIMEOUT_SIGNAL: libc::c_int = libc::SIGURG;
const FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Watch of one guest's calls.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Call counter; odd during a call.
    call: AtomicU64,
    /// Thread of the current call.
    thread: AtomicI32,
    /// Number of the call that is to end.
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

/// Watches a guest's calls for as long as the returned watch is kept.
pub(crate) fn register(limit: Duration) -> Arc<Watch> {
    let none = u64::MAX - 1;
    let watch = Arc::new(Watch { call: 0.into(), thread: 0.into(), over: none.into(), limit });
    static WATCHER: OnceLock<std::thread::Thread> = OnceLock::new();
    watched().push(WatchedGuest { watch: Arc::downgrade(&watch), call: 0, taken: CpuTimeMeter::from(Duration::ZERO) });
    WATCHER
        .get_or_init(|| {
            let thread = std::thread::Builder::new().name("handler-watch".into()).spawn(run_watcher);
            thread.expect("a thread for the watcher").thread().clone()
        })
        .unpark();
    watch
}

/// Watcher's last observation of a guest.
struct WatchedGuest {
    watch: Weak<Watch>,
    call: u64,
    /// CPU time taken by the call.
    taken: CpuTimeMeter,
}

/// CPU time taken by a call. At most [`STEP_MAX`] counts between two checks: when the machine stands still or loses its
/// processors, CPU clocks may advance as well.
#[derive(Debug)]
pub(crate) struct CpuTimeMeter {
    seen: Duration,
    taken: Duration,
}

/// Most CPU time that counts between two checks: less than any reasonable limit.
const STEP_MAX: Duration = POLL.saturating_mul(2);

impl CpuTimeMeter {
    /// CPU time of a call that begins at `spent` on the thread's clock.
    pub(crate) fn from(spent: Duration) -> Self {
        Self { seen: spent, taken: Duration::ZERO }
    }

    /// CPU time of the call at `spent` on the thread's clock.
    pub(crate) fn update(&mut self, spent: Duration) -> Duration {
        self.taken += spent.saturating_sub(self.seen).min(STEP_MAX);
        self.seen = spent;
        self.taken
    }
}

fn watched() -> std::sync::MutexGuard<'static, Vec<WatchedGuest>> {
    static WATCHED: Mutex<Vec<WatchedGuest>> = Mutex::new(Vec::new());
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Main function of the watcher's thread.
fn run_watcher() {
    loop {
        let none = {
            let mut guests = watched();
            guests.retain_mut(check_guest);
            guests.is_empty()
        };
        // The `unpark` for a guest that was registered meanwhile is remembered.
        if none { std::thread::park() } else { std::thread::park_timeout(POLL) }
    }
}

/// Checks one guest; false if the guest is gone.
fn check_guest(seen: &mut WatchedGuest) -> bool {
    let Some(watch) = seen.watch.upgrade() else { return false };
    let call = watch.call.load(Ordering::Acquire);
    if call % 2 == 0 {
        return true;
    }
    let thread = watch.thread.load(Ordering::Relaxed);
    let Some(spent) = thread_time(thread) else { return true };
    if seen.call != call {
        (seen.call, seen.taken) = (call, CpuTimeMeter::from(spent));
    } else if seen.taken.update(spent) >= watch.limit {
        watch.over.store(call, Ordering::Release);
        // SAFETY: the signal goes to a thread of this process, and does nothing unless that thread is in this very
        // call.
        #[allow(unsafe_code, reason = "the call is the kernel's")]
        unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, TIMEOUT_SIGNAL);
        }
    }
    true
}

/// CPU time of a thread of this process; `None` if the thread has ended.
fn thread_time(thread: libc::pid_t) -> Option<Duration> {
    // Clock id of a thread: its complemented number, then 2 (scheduler time) and 4 (per thread).
    clock((!thread) << 3 | 6)
}

/// CPU time of a process.
pub(crate) fn process_time(process: u32) -> Option<Duration> {
    clock((!(process as libc::pid_t)) << 3 | 2)
}

fn clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes at most to `time`.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn thread_id() -> libc::pid_t {
    // SAFETY: the function has no arguments and only returns a number.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    unsafe {
        libc::gettid()
    }
}

/// Signal actions of the process before the signal handlers were installed.
struct FormerActions([OnceLock<libc::sigaction>; 5]);

static FORMER_ACTIONS: FormerActions = FormerActions([const { OnceLock::new() }; 5]);

/// Installs the signal handlers, once.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, former) in FAULTS.into_iter().chain([TIMEOUT_SIGNAL]).zip(&FORMER_ACTIONS.0) {
            // SAFETY: the handler does only what is allowed in a signal handler (see there); SA_ONSTACK lets it run
            // after a stack overflow. All signals are blocked meanwhile; `restore_mask` unblocks them after a jump out
            // of the handler.
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
    /// Signal mask from before the handler that left a guest, until `restore_mask`.
    static SAVED_MASK: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}

/// Restores the thread's signal mask after a guest was left, because the jump out of the handler leaves signals
/// blocked.
pub(crate) fn restore_mask() {
    if let Some(waiting) = SAVED_MASK.take() {
        // SAFETY: the mask was given to the handler by the kernel.
        #[allow(unsafe_code, reason = "the call is the kernel's")]
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const waiting, std::ptr::null_mut());
        }
    }
}

/// Signal handler that leaves the guest of this fault or time-out. Accesses atomics and the thread's own cell only, and
/// calls only the jump out (`pc_leave`); this frame has nothing that needs to be dropped.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let inside = CURRENT_GUEST.with(|inside| inside.load(Ordering::Acquire));
    if !inside.is_null() {
        // SAFETY: `InProcessGuest::enter` sets the pointer and resets it before it returns, and the object is on this
        // thread's stack. `info` and `context` are given by the kernel.
        #[allow(unsafe_code, reason = "a signal tells what was going on")]
        unsafe {
            let CurrentGuest { sandbox, watch } = *inside;
            let inside = (*sandbox).inside.load(Ordering::Relaxed);
            if signal == TIMEOUT_SIGNAL {
                let meant = (*watch).over.load(Ordering::Acquire) == (*watch).call.load(Ordering::Relaxed);
                match inside {
                    GUEST if meant => leave(sandbox, context, 8),
                    HOST if meant => (*sandbox).stop.store(1, Ordering::Relaxed),
                    _ => {}
                }
            } else if inside == GUEST {
                let from = ((*info).si_addr() as usize).wrapping_sub((*sandbox).guard as usize);
                let bytes = (*sandbox).guard_bytes;
                if bytes == 0 || (from as u64) < bytes || matches!(signal, libc::SIGFPE | libc::SIGILL) {
                    leave(sandbox, context, number(signal));
                }
            }
        }
    }
    call_former_action(signal, info, context);
}

/// Jumps out of the guest, and out of the signal handler.
///
/// # Safety
///
/// This thread is in that guest, and `context` was given to the handler by the kernel.
#[allow(unsafe_code, reason = "a signal's context is read, and its handler left")]
unsafe fn leave(sandbox: *mut RawSandbox, context: *mut c_void, trap: u32) {
    // SAFETY: see above.
    unsafe {
        (*sandbox).at = program_counter(context);
        SAVED_MASK.set(Some((*context.cast::<libc::ucontext_t>()).uc_sigmask));
        ((*sandbox).leave)(sandbox, trap);
    }
}

/// Trap number of a signal in `sandbox.h`.
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

/// Calls the former signal action.
fn call_former_action(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let place = FAULTS.iter().position(|fault| *fault == signal).unwrap_or(FAULTS.len());
    let Some(former) = FORMER_ACTIONS.0[place].get() else { return };
    match former.sa_sigaction {
        // Ignored by default.
        libc::SIG_DFL if signal == TIMEOUT_SIGNAL => {}
        libc::SIG_IGN => {}
        // SAFETY: the former action is restored, and the fault repeats.
        #[allow(unsafe_code, reason = "the default action can't be called, only set")]
        libc::SIG_DFL => unsafe {
            libc::sigaction(signal, former, std::ptr::null_mut());
        },
        // SAFETY: the former handler was installed with this signature.
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
    fn stalled_machine_does_not_consume_time_limit() {
        let at = Duration::from_millis;
        let mut taken = CpuTimeMeter::from(at(100));
        assert_eq!(taken.update(at(105)), at(5));
        // Two seconds between two checks.
        assert_eq!(taken.update(at(2105)), at(5) + STEP_MAX);
        assert_eq!(taken.update(at(2105)), at(5) + STEP_MAX);
        assert_eq!(taken.update(at(2110)), at(10) + STEP_MAX);
    }
}
