//! Punctual scheduling of the emulated device's thread on a busy machine: a real accelerator has its own processor.
//!
//! Next to threads that compute, a thread that wakes up waits for one or more ticks of the kernel: 4 ms and more,
//! while a device answers within microseconds. Therefore the thread asks for real-time scheduling, which needs a
//! privilege (`CAP_SYS_NICE`, or `ulimit -r`). Without it, the thread asks for short slices, with which it runs
//! sooner after a wake-up (Linux 6.12).
#![expect(unsafe_code, reason = "the kernel is asked for a thread's scheduling: there is no safe call for it")]

/// Requests punctual scheduling of this thread. If the kernel refuses, answers are late, and nothing worse happens.
#[cfg(target_os = "linux")]
pub(super) fn request_punctual_scheduling() {
    // The default timer slack is up to 50 us.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    if !schedule(libc::SCHED_FIFO, 1, 0) {
        schedule(libc::SCHED_OTHER, 0, SLICE_NS);
    }
}

/// Shortest slice of the kernel, in nanoseconds.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000;

/// Sets a scheduling policy, with a real-time priority, or with a slice.
#[cfg(target_os = "linux")]
fn schedule(policy: i32, priority: u32, slice_ns: u64) -> bool {
    // Threads that a function of the application starts get the default policy.
    let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: flags,
        sched_nice: 0,
        sched_priority: priority,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: during the call the kernel reads the attributes, which contain their size.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Other systems are not supported.
#[cfg(not(target_os = "linux"))]
pub(super) fn request_punctual_scheduling() {}
