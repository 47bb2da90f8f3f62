//! Delay and reordering of frames in user space, since no suitable kernel queue may be available: threads receive frames
//! from a packet socket in the wire, hold them, and send them back.
//!
//! ```text
//!   near ─► rules ─► inlet ═veth═ outlet ─► socket ─► reader ─► queue ─► writer ─► socket ─► outlet ═ inlet ─► far
//! ```
//!
//! Each direction of a link has two threads. The reader records when each frame is due; the writer waits until then.
//! The reader writes reordered frames at once.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use pathcall_wire::SplitMix64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::Error;
use crate::packet_socket;
use crate::plan::{DOWN, NodeName, TestbedPlan, UP};
use crate::profile::{FrameShare, LinkProfile};
use crate::testbed::{enter, namespace_file};

/// Memory for held frames of one direction; beyond it, the socket's queue overflows.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Ethernet header beside a packet, with room for a VLAN tag.
const HEADERS_BYTES: usize = 18;

/// Threads that delay frames; dropping the value ends them.
#[derive(Debug)]
pub(crate) struct Relay {
    over: Arc<AtomicBool>,
    stop: Option<PipeWriter>,
    threads: Vec<JoinHandle<()>>,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    socket: File,
    /// Stop flag, for threads that never wait.
    over: Arc<AtomicBool>,
    /// Readable after the stop, for threads that wait.
    stop: PipeReader,
    profile: LinkProfile,
    frame_bytes_max: usize,
}

/// Frame with its due time.
struct HeldFrame {
    due: Instant,
    bytes: usize,
    frame: Vec<u8>,
}

impl Relay {
    /// Starts the threads; `None` where no link has a delay.
    pub(crate) fn start(plan: &TestbedPlan) -> Result<Option<Self>, Error> {
        let mut delayed = Vec::new();
        for cable in plan.cables() {
            let detours = [UP, DOWN].into_iter().filter_map(|direction| cable.detour(direction));
            delayed.extend(detours.map(|detour| (detour.outlet, cable.profile)));
        }
        if delayed.is_empty() {
            return Ok(None);
        }
        let interfaces = delayed.iter().map(|(outlet, _)| outlet.clone()).collect();
        let sockets = open(&plan.bed, interfaces)?;
        let (stopped, stop) = std::io::pipe().map_err(Error::io("a pipe"))?;
        let mut relay = Self { over: Arc::default(), stop: Some(stop), threads: Vec::new() };
        for ((_, profile), socket) in delayed.into_iter().zip(sockets) {
            let stop = stopped.try_clone().map_err(Error::io("a pipe"))?;
            let frame_bytes_max = plan.mtu as usize + HEADERS_BYTES;
            let over = Arc::clone(&relay.over);
            relay.begin(Direction { socket, over, stop, profile, frame_bytes_max })?;
        }
        Ok(Some(relay))
    }

    fn begin(&mut self, direction: Direction) -> Result<(), Error> {
        let (hold, held) = sync_channel(HELD_BYTES_MAX / direction.frame_bytes_max);
        let (give_back, spare) = channel();
        let reading = Arc::new(direction);
        let writing = Arc::clone(&reading);
        let spawn = |body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name("testbed-relay".to_owned()).spawn(body).map_err(Error::io("starting a thread"))
        };
        self.threads.push(spawn(Box::new(move || reading.read(&hold, &spare)))?);
        self.threads.push(spawn(Box::new(move || writing.write(&held, &give_back)))?);
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Direction {
    /// Reads frames until it is stopped or the interface is gone.
    fn read(&self, hold: &SyncSender<HeldFrame>, spare: &Receiver<Vec<u8>>) {
        let mut chance = Chance::new(self.profile.reorder);
        let mut frame = vec![0; self.frame_bytes_max];
        while !self.is_over() {
            match (&self.socket).read(&mut frame) {
                Ok(bytes) if chance.happens() => self.send(&frame[..bytes]),
                Ok(bytes) => {
                    let next = spare.try_recv().unwrap_or_else(|_| vec![0; self.frame_bytes_max]);
                    let frame = std::mem::replace(&mut frame, next);
                    let due = Instant::now() + self.profile.delay.duration();
                    if hold.send(HeldFrame { due, bytes, frame }).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.wait(None) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Sends frames when they are due.
    fn write(&self, held: &Receiver<HeldFrame>, give_back: &Sender<Vec<u8>>) {
        while let Ok(HeldFrame { due, bytes, frame }) = held.recv() {
            if self.is_over() || due > Instant::now() && !self.wait(Some(due)) {
                return;
            }
            self.send(&frame[..bytes]);
            // The reader may have ended.
            let _ = give_back.send(frame);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits until `due`, or for a frame, also across signals. Returns false when the relay stops.
    fn wait(&self, due: Option<Instant>) -> bool {
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        let fds = if due.is_some() { &mut fds[..1] } else { &mut fds[..] };
        loop {
            // A time of at most a second fits.
            let left = due.and_then(|due| Timespec::try_from(due.saturating_duration_since(Instant::now())).ok());
            match poll(fds, left.as_ref()) {
                Err(Errno::INTR) => {}
                polled => return polled.is_ok() && fds[0].revents().is_empty(),
            }
        }
    }

    /// Sends a frame; a frame that the system refuses is lost, as on any link.
    fn send(&self, frame: &[u8]) {
        let _ = (&self.socket).write(frame);
    }
}

/// Random choice with a fixed probability.
struct Chance {
    share: FrameShare,
    random: SplitMix64,
}

impl Chance {
    fn new(share: FrameShare) -> Self {
        Self { share, random: SplitMix64::new(RandomState::new().hash_one(0)) }
    }

    fn happens(&mut self) -> bool {
        self.random.bits() % u64::from(FrameShare::ALL.millionths()) < u64::from(self.share.millionths())
    }
}

/// Opens a socket at each of these interfaces of the wire. A thread enters the wire's namespace for it.
fn open(bed: &str, interfaces: Vec<String>) -> Result<Vec<File>, Error> {
    let doing = "opening a packet socket of the testbed";
    let wire = namespace_file(&NodeName::Wire.namespace(bed));
    let thread = thread::spawn(move || {
        enter(&wire)?;
        interfaces.iter().map(|name| packet_socket::open(name).map_err(Error::io(doing))).collect()
    });
    thread.join().unwrap_or_else(|_| Err(Error::io(doing)(std::io::Error::other("the thread panicked"))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn busy_relay_ends_with_testbed() {
        for reorder in [FrameShare::default(), FrameShare::ALL] {
            let (stop, stopped) = std::io::pipe().unwrap();
            let mut relay = Relay { over: Arc::default(), stop: Some(stopped), threads: Vec::new() };
            // The file always has a further frame, and each frame is overdue when its turn comes.
            let socket = File::options().read(true).write(true).open("/dev/zero").unwrap();
            let profile = LinkProfile { reorder, ..LinkProfile::default() };
            let over = Arc::clone(&relay.over);
            relay.begin(Direction { socket, over, stop, profile, frame_bytes_max: 1500 }).unwrap();
            thread::sleep(Duration::from_millis(100));
            let (end, ended) = channel();
            thread::spawn(move || {
                drop(relay);
                end.send(())
            });
            assert!(ended.recv_timeout(Duration::from_secs(180)).is_ok(), "{reorder} overtake others");
        }
    }
}
