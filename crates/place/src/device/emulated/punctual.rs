//! A thread that runs when it is due, also where all processors are busy: an accelerator has a processor of its own.
//!
//! Beside threads that compute, one that sleeps and wakes is let wait for a tick of the kernel, or several: 4 ms and more,
//! where a device answers within microseconds. So it asks for real-time scheduling, which takes a privilege
//! (`CAP_SYS_NICE`, or `ulimit -r`); without that, for short slices, which who wakes from sleep is given sooner (Linux 6.12).
#![expect(unsafe_code, reason = "the kernel is asked for a thread's scheduling: there is no safe call for it")]

/// Has this thread run when it is due. Where the kernel does not allow it answers are later: the worst that comes of it.
#[cfg(target_os = "linux")]
pub(super) fn be_punctual() {
    // Wakes it up at the time, rather than up to 50 us later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    if !schedule(libc::SCHED_FIFO, 1, 0) {
        schedule(libc::SCHED_OTHER, 0, SLICE_NS);
    }
}

/// The shortest slice that the kernel gives, nanoseconds.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000;

/// Asks for a policy, with a priority of real time, or a slice otherwise.
#[cfg(target_os = "linux")]
fn schedule(policy: i32, priority: u32, slice_ns: u64) -> bool {
    // Threads that a function of the application starts are ordinary ones.
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
    // SAFETY: the kernel reads the attributes, which say how long they are, during the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// Other systems are left as they are.
#[cfg(not(target_os = "linux"))]
pub(super) fn be_punctual() {}
