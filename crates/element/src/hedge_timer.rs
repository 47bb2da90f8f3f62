//! Timer of held hedges: a timer of the system, which the data thread awaits beside its sockets.
//!
//! Its resolution is that of the system's high-resolution timers: a hedge leaves some 50 to 100 us after its time, when
//! the thread has to be woken. A runtime's own timers would be a millisecond coarse.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use pathcall_wire::Instant;
use rustix::fs::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Shortest wait; zero would stop the timer.
const WAIT_MIN: Duration = Duration::from_nanos(1);

/// Timer of the next held hedge.
#[derive(Debug)]
pub(crate) struct HedgeTimer {
    timer: AsyncFd<OwnedFd>,
    /// Time at which it expires, on the program's clock; `None`: it is stopped, or has expired.
    armed: Option<Instant>,
}

impl HedgeTimer {
    /// Creates a stopped timer, inside the runtime that awaits it.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        #[allow(
            deprecated,
            reason = "its replacement is unsafe, because descriptors may close; an owned one stays open"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self { timer, armed: None })
    }

    /// Makes the timer expire at `at` at the latest. A timer that expires earlier is left as it is: most hedges are
    /// dropped before their time, and a system call for each would cost more than a few vain expiries.
    pub(crate) fn arm(&mut self, now: Instant, at: Option<Instant>) {
        let Some(at) = at.filter(|at| self.armed.is_none_or(|armed| *at < armed)) else { return };
        let wait = at.since(now).max(WAIT_MIN);
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec) {
            Ok(_) => self.armed = Some(at),
            Err(error) => tracing::error!(%error, "cannot set the timer of held hedges: they leave with later frames"),
        }
    }

    /// Waits until the timer expires; forever while it is stopped.
    pub(crate) async fn expired(&mut self) {
        let mut expiries = [0; 8];
        while let Ok(mut ready) = self.timer.readable().await {
            if ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expiries)?)).is_ok() {
                self.armed = None;
                return;
            }
        }
        // The runtime ends.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timer_expires_at_earliest_time() {
        let mut timer = HedgeTimer::new().expect("a timer");
        let (now, far) = (Instant(7), Instant(7) + Duration::from_secs(3_600));
        timer.arm(now, None);
        timer.arm(now, Some(far));
        timer.arm(now, Some(now));
        assert_eq!(timer.armed, Some(now));
        timer.arm(now, Some(far));
        assert_eq!(timer.armed, Some(now), "an earlier expiry is left");
        timer.expired().await;
        assert_eq!(timer.armed, None);
    }
}
