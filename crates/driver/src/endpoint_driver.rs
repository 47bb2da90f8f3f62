//! Driver of one endpoint: a state machine and its link, shared by the commanding threads and the receiving task.

use std::fmt;
use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use pathcall_wire::Instant;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::link::{Link, PollMode, Readiness};

/// Longest time to complete the calls in progress after the last handle was dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a task without a deadline wakes all the same: less than the shortest deadline that a new command
/// sets, so that a command which follows soon need not wake the task.
const RECHECK_TIME: Duration = Duration::from_millis(5);

/// Time after which a busy-polling call yields its processor between two polls: on one host, an element that polls
/// has answered by then if it has a processor of its own.
const SPIN_TIME: Duration = Duration::from_micros(10);

/// State machine of an endpoint, as its driver uses it.
pub(super) trait StateMachine: Send + 'static {
    /// Handles a frame received from `from`; `ce`: the network marked it "congestion experienced".
    fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &mut [u8],
        ce: bool,
        send: impl FnMut(SocketAddr, &[u8]),
    );
    fn poll(&mut self, now: Instant, send: impl FnMut(SocketAddr, &[u8]));
    /// Delivers finished results to their receivers, and flushes carried frames.
    fn deliver_events(&mut self);
    fn deadline(&self) -> Option<Instant>;
    /// Address of the element, which receives most of the frames and may share memory.
    fn element(&self) -> Option<SocketAddr>;
    /// Called when the last handle was dropped: no more commands come.
    fn close(&mut self, now: Instant);
    /// Returns whether nothing is left to complete.
    fn is_idle(&self) -> bool;
    /// Called when the driver stops: everything that waits for a result is released.
    fn on_driver_dropped(&mut self);
}

/// State machine and link of an endpoint behind a lock.
pub(super) struct EndpointDriver<P> {
    state: Mutex<State<P>>,
    /// Wakes the task when a deadline has changed or the last handle was dropped.
    wake: Notify,
    readiness: Readiness,
    origin: Clock,
}

/// Owning handle, shared by all clones of a public handle: dropping the last one closes the endpoint.
pub(super) struct DriverHandle<P: StateMachine>(pub(super) Arc<EndpointDriver<P>>);

impl<P: StateMachine> Deref for DriverHandle<P> {
    type Target = EndpointDriver<P>;

    fn deref(&self) -> &EndpointDriver<P> {
        &self.0
    }
}

impl<P: StateMachine> Drop for DriverHandle<P> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<P: StateMachine> fmt::Debug for DriverHandle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverHandle").finish_non_exhaustive()
    }
}

pub(super) struct State<P> {
    pub(super) machine: P,
    link: Link,
    /// Time at which the task wakes by itself.
    armed: Option<Instant>,
    /// Time at which the last handle was dropped.
    closed: Option<Instant>,
    /// The task has ended: no more frames are received.
    ended: bool,
    /// Number of threads that poll the link themselves, so that no peer has to wake the task.
    busy_polls: usize,
}

/// Busy poll of the link in the calling thread; ends when dropped.
pub(super) struct BusyPoll<'a, P: StateMachine>(&'a EndpointDriver<P>);

/// Error: the endpoint's task has ended.
pub(super) struct DriverEnded;

impl<P: StateMachine> EndpointDriver<P> {
    pub(super) fn new(machine: P, link: Link) -> Arc<Self> {
        let readiness = link.readiness();
        let state = State { machine, link, armed: None, closed: None, ended: false, busy_polls: 0 };
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), readiness, origin: Clock::now() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a command on the state machine and sends the resulting frames; the command may queue frames itself.
    pub(super) fn command<T>(&self, command: impl FnOnce(&mut P, Instant, &mut Link) -> T) -> Result<T, DriverEnded> {
        let mut state = self.lock();
        if state.ended {
            return Err(DriverEnded);
        }
        let now = self.now();
        let State { machine, link, .. } = &mut *state;
        let result = command(machine, now, link);
        state.drive(now);
        let early = state.machine.deadline().is_some_and(|at| state.armed.is_none_or(|armed| at < armed));
        if early || state.link.is_blocked() {
            drop(state);
            self.wake.notify_one();
        }
        Ok(result)
    }

    /// Starts a busy poll in the calling thread.
    pub(super) fn busy_poll(&self) -> BusyPoll<'_, P> {
        let mut state = self.lock();
        state.busy_polls += 1;
        state.link.disarm_wakeup();
        BusyPoll(self)
    }

    /// Polls the link in the calling thread until the answer is there, for `time` at most. Ready tasks run before each
    /// poll.
    pub(super) async fn busy_poll_until<T>(&self, answer: &oneshot::Receiver<T>, time: Duration) {
        let (began, poll) = (Clock::now(), self.busy_poll());
        while answer.is_empty() && !answer.is_terminated() && began.elapsed() < time {
            if !poll.receive() {
                if began.elapsed() > SPIN_TIME {
                    // The element may be waiting for this processor.
                    std::thread::yield_now();
                }
                yield_to_ready_tasks().await;
            }
        }
    }

    /// Receives one batch in the calling thread; returns whether there was one.
    fn receive(&self) -> bool {
        let mut state = self.lock();
        let now = self.now();
        let received = state.receive(now, PollMode::Always);
        if received {
            state.drive(now);
        }
        received
    }

    /// Closes the endpoint: no more commands come, and it ends when it is idle.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let now = self.now();
        if state.closed.is_none() && !state.ended {
            state.closed = Some(now);
            state.machine.close(now);
            state.drive(now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Drives the endpoint until it is closed and idle; returns whether it became idle.
    pub(super) fn run(self: Arc<Self>) -> impl Future<Output = bool> + Send + 'static {
        // The runtime may be gone before that, or before the future is first polled.
        let guard = DriverGuard(self);
        async move {
            let guard = guard;
            guard.0.until_idle().await
        }
    }

    async fn until_idle(&self) -> bool {
        let mut sleep = pin!(sleep_until(self.origin.into()));
        let mut recheck_soon = false;
        // The initial frames of the endpoint: no command triggers them.
        self.lock().drive(self.now());
        loop {
            let (armed, blocked, frames) = {
                let mut state = self.lock();
                let over = state.closed.map(|at| at + CLOSE_TIMEOUT);
                if let Some(over) = over
                    && (state.machine.is_idle() || over <= self.now())
                {
                    return state.machine.is_idle();
                }
                let next_wake = state.machine.deadline().into_iter().chain(over).min();
                let recheck = || recheck_soon.then(|| self.now() + RECHECK_TIME);
                match (next_wake.or_else(recheck), state.armed) {
                    // A wake-up too early costs less than setting the timer anew each time.
                    (Some(next_wake), Some(armed)) if armed <= next_wake => {}
                    (next_wake, _) => {
                        state.armed = next_wake;
                        if let Some(at) = next_wake {
                            sleep.as_mut().reset((self.origin + Duration::from_nanos(at.0)).into());
                        }
                    }
                }
                // While a thread busy-polls, the last one to stop arms the wake-up instead of the task.
                let frames = state.busy_polls == 0 && !state.link.arm_wakeup();
                (state.armed.is_some(), state.link.is_blocked(), frames)
            };
            let timer = async {
                if armed {
                    sleep.as_mut().await;
                } else {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                () = self.wake.notified() => recheck_soon = true,
                // Frames are there already; other tasks run first all the same.
                () = tokio::task::yield_now(), if frames => recheck_soon = true,
                ready = self.readiness.ready(blocked) => {
                    if ready.is_err() {
                        return false;
                    }
                    recheck_soon = true;
                }
                () = timer => {
                    self.lock().armed = None;
                    recheck_soon = false;
                }
            }
            let mut state = self.lock();
            let now = self.now();
            state.receive(now, PollMode::IfReady);
            state.drive(now);
        }
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Drop guard of the driver's task: marks the endpoint as ended when dropped.
struct DriverGuard<P: StateMachine>(Arc<EndpointDriver<P>>);

impl<P: StateMachine> Drop for DriverGuard<P> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.machine.on_driver_dropped();
    }
}

/// Lets other ready tasks run; unlike tokio's `yield_now` it does not look for new I/O events first.
async fn yield_to_ready_tasks() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<P: StateMachine> BusyPoll<'_, P> {
    /// Receives one batch; returns whether there was one.
    pub(super) fn receive(&self) -> bool {
        self.0.receive()
    }
}

impl<P: StateMachine> Drop for BusyPoll<'_, P> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy_polls -= 1;
        if state.busy_polls == 0 && !state.link.arm_wakeup() {
            drop(state);
            self.0.wake.notify_one();
        }
    }
}

impl<P: StateMachine> State<P> {
    /// Receives one batch of frames; returns whether there was one.
    fn receive(&mut self, now: Instant, looking: PollMode) -> bool {
        let machine = &mut self.machine;
        let received = self.link.exchange(looking, |out, from, ce, frame| {
            machine.handle(now, from, frame, ce, |to, frame| out.queue(to, frame));
        });
        // An error concerns one datagram (an unreachable peer, for example); the flow handles the loss.
        matches!(received, Ok(1..))
    }

    fn drive(&mut self, now: Instant) {
        let Self { machine, link, .. } = self;
        link.request_memory(now, machine.element());
        machine.poll(now, |to, frame| link.queue(to, frame));
        link.flush();
        machine.deliver_events();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::Ipv4Addr;

    use pathcall_test_support::HANG;
    use tokio::sync::mpsc;

    use super::super::link::SharingRole;
    use super::*;

    /// State machine that reports each frame and sends nothing.
    struct FrameRecorder {
        element: SocketAddr,
        frames: mpsc::UnboundedSender<Vec<u8>>,
    }

    impl StateMachine for FrameRecorder {
        fn handle(&mut self, _: Instant, _: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
            let _ = self.frames.send(frame.to_vec());
        }
        fn poll(&mut self, _: Instant, _: impl FnMut(SocketAddr, &[u8])) {}
        fn deliver_events(&mut self) {}
        fn deadline(&self) -> Option<Instant> {
            None
        }
        fn element(&self) -> Option<SocketAddr> {
            Some(self.element)
        }
        fn close(&mut self, _: Instant) {}
        fn is_idle(&self) -> bool {
            true
        }
        fn on_driver_dropped(&mut self) {}
    }

    fn link(part: SharingRole) -> Link {
        let mut link = Link::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        link.share_memory(part).unwrap();
        link
    }

    #[tokio::test]
    async fn ring_frames_wake_task_unless_a_thread_polls() {
        let (mut element, endpoint) = (link(SharingRole::Offer), link(SharingRole::Request));
        let (frames, mut received) = mpsc::unbounded_channel();
        let to = endpoint.local_addr();
        let shared = EndpointDriver::new(FrameRecorder { element: element.local_addr(), frames }, endpoint);
        let task = tokio::spawn(Arc::clone(&shared).run());
        while element.memory_peers().count() == 0 {
            element.readable().await.unwrap();
            element.recv(|_, _, _| panic!("no frame")).unwrap();
        }
        let mut send = |frame: &[u8]| {
            element.queue(to, frame);
            element.flush();
        };
        send(b"first");
        assert_eq!(tokio::time::timeout(HANG, received.recv()).await.unwrap().unwrap(), b"first");
        for _ in 0..3 {
            // Wait until the task waits for frames alone: no timer wakes it.
            while shared.lock().armed.is_some() {
                tokio::task::yield_now().await;
            }
            let poll = shared.busy_poll();
            send(b"looked for");
            while !poll.receive() {}
            assert_eq!(received.try_recv().unwrap(), b"looked for");
            // The task was not woken: the busy poll would have competed with it.
            assert!(shared.lock().armed.is_none());
            drop(poll);
            send(b"waited for");
            assert_eq!(tokio::time::timeout(HANG, received.recv()).await.unwrap().unwrap(), b"waited for");
        }
        shared.close();
        assert!(task.await.unwrap());
    }
}
