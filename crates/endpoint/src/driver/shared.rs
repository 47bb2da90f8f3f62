//! A party and its link, shared by those who command it and by the task that receives for it.

use std::fmt;
use std::future::{pending, poll_fn};
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant as Clock};

use pathcall_wire::Instant;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::Party;
use super::link::{Link, Looking, Readiness};

/// Driving what was begun to its end takes no longer than this.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// A task that has nothing to wait for looks again after this time all the same: less than the
/// shortest deadline that a new command sets, so that a command which follows soon need not wake it.
const LINGER: Duration = Duration::from_millis(5);

/// A call that looks for its answer gives its processor away between two looks after this time: on
/// one host, an element that polls has answered by then if it has a processor of its own.
const PATIENCE: Duration = Duration::from_micros(10);

/// A party behind a lock.
pub(super) struct Shared<P> {
    state: Mutex<State<P>>,
    /// Tells the task that it must look at its deadline, or that nobody commands it any more.
    wake: Notify,
    readiness: Readiness,
    origin: Clock,
}

/// What all clones of a handle share: with the last of them its party is closed.
pub(super) struct Owned<P: Party>(pub(super) Arc<Shared<P>>);

impl<P: Party> Deref for Owned<P> {
    type Target = Shared<P>;

    fn deref(&self) -> &Shared<P> {
        &self.0
    }
}

impl<P: Party> Drop for Owned<P> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<P: Party> fmt::Debug for Owned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").finish_non_exhaustive()
    }
}

pub(super) struct State<P> {
    pub(super) party: P,
    link: Link,
    /// When the task wakes by itself.
    armed: Option<Instant>,
    /// Since when nobody commands it.
    closed: Option<Instant>,
    /// The task has ended: frames that come are not received any more.
    ended: bool,
    /// Those who look for frames themselves, so that nobody need wake the task for them.
    lookers: usize,
}

/// One who looks for frames in its own thread, until this is dropped.
pub(super) struct Looker<'a, P: Party>(&'a Shared<P>);

/// The party's task has ended.
pub(super) struct Ended;

impl<P: Party> Shared<P> {
    pub(super) fn new(party: P, link: Link) -> Arc<Self> {
        let readiness = link.readiness();
        let state = State { party, link, armed: None, closed: None, ended: false, lookers: 0 };
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), readiness, origin: Clock::now() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a command, and sends what comes of it.
    pub(super) fn command(&self, command: P::Command) -> Result<(), Ended> {
        let mut state = self.lock();
        if state.ended {
            return Err(Ended);
        }
        let now = self.now();
        let State { party, link, .. } = &mut *state;
        party.command(now, command, |to, frame| link.queue(to, frame));
        state.drive(now);
        let early = state.party.deadline().is_some_and(|at| state.armed.is_none_or(|armed| at < armed));
        if early || state.link.is_blocked() {
            drop(state);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Begins to look for frames in the caller's thread.
    pub(super) fn look(&self) -> Looker<'_, P> {
        let mut state = self.lock();
        state.lookers += 1;
        state.link.look();
        Looker(self)
    }

    /// Looks for an answer in the caller's thread, for so long at most. Tasks that are ready have precedence over
    /// each look.
    pub(super) async fn look_for<T>(&self, answer: &oneshot::Receiver<T>, time: Duration) {
        let (began, looker) = (Clock::now(), self.look());
        while answer.is_empty() && !answer.is_terminated() && began.elapsed() < time {
            if !looker.receive() {
                if began.elapsed() > PATIENCE {
                    // The element may be waiting for this very processor.
                    std::thread::yield_now();
                }
                others_first().await;
            }
        }
    }

    /// Receives in the caller's thread what is there now; whether anything was.
    fn receive(&self) -> bool {
        let mut state = self.lock();
        let now = self.now();
        let received = state.receive(now, Looking::Anyway);
        if received {
            state.drive(now);
        }
        received
    }

    /// Nobody commands it any more: it ends when it is idle.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let now = self.now();
        if state.closed.is_none() && !state.ended {
            state.closed = Some(now);
            state.party.close(now);
            state.drive(now);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Drives the party until nobody commands it any more and it is idle; whether it became idle.
    pub(super) fn run(self: Arc<Self>) -> impl Future<Output = bool> + Send + 'static {
        // Its runtime may be gone before that, or before it is begun.
        let driven = Driven(self);
        async move {
            let driven = driven;
            driven.0.until_idle().await
        }
    }

    async fn until_idle(&self) -> bool {
        let mut sleep = pin!(sleep_until(self.origin.into()));
        let mut linger = false;
        // What the party begins with: nobody commands that.
        self.lock().drive(self.now());
        loop {
            let (armed, blocked, frames) = {
                let mut state = self.lock();
                let over = state.closed.map(|at| at + CLOSING_MAX);
                if let Some(over) = over
                    && (state.party.is_idle() || over <= self.now())
                {
                    return state.party.is_idle();
                }
                let wish = state.party.deadline().into_iter().chain(over).min();
                let lingering = || linger.then(|| self.now() + LINGER);
                match (wish.or_else(lingering), state.armed) {
                    // A wake-up too early costs less than setting the timer anew each time.
                    (Some(wish), Some(armed)) if armed <= wish => {}
                    (wish, _) => {
                        state.armed = wish;
                        if let Some(at) = wish {
                            sleep.as_mut().reset((self.origin + Duration::from_nanos(at.0)).into());
                        }
                    }
                }
                // The last one that looks asks to be woken in the task's place.
                let frames = state.lookers == 0 && !state.link.wait();
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
                () = self.wake.notified() => linger = true,
                // There are some already; others have their turn all the same.
                () = tokio::task::yield_now(), if frames => linger = true,
                ready = self.readiness.ready(blocked) => {
                    if ready.is_err() {
                        return false;
                    }
                    linger = true;
                }
                () = timer => {
                    self.lock().armed = None;
                    linger = false;
                }
            }
            let mut state = self.lock();
            let now = self.now();
            state.receive(now, Looking::IfReady);
            state.drive(now);
        }
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A party that is driven as long as this lives.
struct Driven<P: Party>(Arc<Shared<P>>);

impl<P: Party> Drop for Driven<P> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.party.forsake();
    }
}

/// Lets what else is ready run; unlike tokio's `yield_now` it does not look for other events first.
async fn others_first() {
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

impl<P: Party> Looker<'_, P> {
    /// Receives what is there now; whether anything was.
    pub(super) fn receive(&self) -> bool {
        self.0.receive()
    }
}

impl<P: Party> Drop for Looker<'_, P> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.lookers -= 1;
        if state.lookers == 0 && !state.link.wait() {
            drop(state);
            self.0.wake.notify_one();
        }
    }
}

impl<P: Party> State<P> {
    /// Takes one batch of frames; whether there was one.
    fn receive(&mut self, now: Instant, looking: Looking) -> bool {
        let party = &mut self.party;
        let received = self.link.exchange(looking, |out, from, ce, frame| {
            party.handle(now, from, frame, ce, |to, frame| out.queue(to, frame));
        });
        // An error here is about one datagram (an unreachable peer, say); its flow will notice.
        matches!(received, Ok(1..))
    }

    fn drive(&mut self, now: Instant) {
        let Self { party, link, .. } = self;
        link.seek(now, party.element());
        party.poll(now, |to, frame| link.queue(to, frame));
        link.flush();
        party.settle();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use pathcall_test_support::HANG;
    use tokio::sync::mpsc;

    use super::super::link::Sharing;
    use super::*;

    /// Reports each frame, and wants nothing.
    struct Listener {
        element: SocketAddr,
        heard: mpsc::UnboundedSender<Vec<u8>>,
    }

    impl Party for Listener {
        type Command = ();
        fn command(&mut self, _: Instant, (): (), _: impl FnMut(SocketAddr, &[u8])) {}
        fn handle(&mut self, _: Instant, _: SocketAddr, frame: &mut [u8], _: bool, _: impl FnMut(SocketAddr, &[u8])) {
            let _ = self.heard.send(frame.to_vec());
        }
        fn poll(&mut self, _: Instant, _: impl FnMut(SocketAddr, &[u8])) {}
        fn settle(&mut self) {}
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
        fn forsake(&mut self) {}
    }

    fn link(part: Sharing) -> Link {
        let mut link = Link::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        link.share_memory(part).unwrap();
        link
    }

    #[tokio::test]
    async fn the_task_is_woken_for_frames_in_memory_unless_somebody_looks() {
        let (mut element, endpoint) = (link(Sharing::Offer), link(Sharing::Seek));
        let (heard, mut hearing) = mpsc::unbounded_channel();
        let to = endpoint.local_addr();
        let shared = Shared::new(Listener { element: element.local_addr(), heard }, endpoint);
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
        assert_eq!(tokio::time::timeout(HANG, hearing.recv()).await.unwrap().unwrap(), b"first");
        for _ in 0..3 {
            // Until the task waits for frames alone: no timer has it look again.
            while shared.lock().armed.is_some() {
                tokio::task::yield_now().await;
            }
            let looker = shared.look();
            send(b"looked for");
            while !looker.receive() {}
            assert_eq!(hearing.try_recv().unwrap(), b"looked for");
            // Nobody was woken: the one that looks would have been in its way.
            assert!(shared.lock().armed.is_none());
            drop(looker);
            send(b"waited for");
            assert_eq!(tokio::time::timeout(HANG, hearing.recv()).await.unwrap().unwrap(), b"waited for");
        }
        shared.close();
        assert!(task.await.unwrap());
    }
}
