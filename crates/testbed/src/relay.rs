//! Fixed delays and reordering, which no queue of the kernel's may be there for: frames are read from a
//! device in the wire, held, and written back to it.
//!
//! ```text
//!   near ─► rules ─► inlet ═veth═ outlet ─► tap ─► reader ─► queue ─► writer ─► tap ─► outlet ═ inlet ─► far
//! ```
//!
//! A direction of a link has two threads. The reader notes when each frame is due; the writer waits for
//! that. A frame that is to overtake others is written by the reader, at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};

use crate::error::Error;
use crate::plan::{DOWN, NodeName, Plan, UP};
use crate::profile::{Profile, Share};
use crate::tool;

/// Memory for frames that one direction of a link holds; with more, its device's queue overflows.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Beside a packet: its Ethernet header, and the header that the device puts before it.
const HEADERS_BYTES: usize = 14 + 12;

/// Threads that delay frames, until it is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Option<PipeWriter>,
    threads: Vec<JoinHandle<()>>,
}

/// One direction of a link.
#[derive(Debug)]
struct Direction {
    tap: File,
    /// Readable when all is to end.
    stop: PipeReader,
    profile: Profile,
    frame_bytes_max: usize,
}

/// A frame and when it is due.
struct Held {
    due: Instant,
    bytes: usize,
    frame: Vec<u8>,
}

impl Relay {
    /// Begins; none where nothing is delayed.
    pub(crate) fn start(plan: &Plan) -> Result<Option<Self>, Error> {
        let mut delayed = Vec::new();
        for cable in plan.cables() {
            let detours = [UP, DOWN].into_iter().filter_map(|direction| cable.detour(direction));
            delayed.extend(detours.map(|detour| (detour.tap, cable.profile)));
        }
        if delayed.is_empty() {
            return Ok(None);
        }
        let devices = devices(&NodeName::Wire.namespace(&plan.bed))?;
        let (stopped, stop) = std::io::pipe().map_err(Error::io("a pipe"))?;
        let mut relay = Self { stop: Some(stop), threads: Vec::new() };
        for (name, profile) in delayed {
            let missing = || Error::Output { program: "ls", expected: format!("device {name}"), got: String::new() };
            let tap = open(&plan.bed, *devices.get(&name).ok_or_else(missing)?)?;
            let stop = stopped.try_clone().map_err(Error::io("a pipe"))?;
            let frame_bytes_max = plan.mtu as usize + HEADERS_BYTES;
            relay.begin(Direction { tap, stop, profile, frame_bytes_max })?;
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
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Direction {
    /// Takes frames in until it is to stop, or the device is gone.
    fn read(&self, hold: &SyncSender<Held>, spare: &Receiver<Vec<u8>>) {
        let mut chance = Chance::new(self.profile.reorder);
        let mut frame = vec![0; self.frame_bytes_max];
        loop {
            match (&self.tap).read(&mut frame) {
                Ok(bytes) if chance.strikes() => self.send(&frame[..bytes]),
                Ok(bytes) => {
                    let next = spare.try_recv().unwrap_or_else(|_| vec![0; self.frame_bytes_max]);
                    let frame = std::mem::replace(&mut frame, next);
                    let due = Instant::now() + self.profile.delay.duration();
                    if hold.send(Held { due, bytes, frame }).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut ready = [PollFd::new(&self.tap, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
                    if poll(&mut ready, None).is_err() || !ready[1].revents().is_empty() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Sends frames on when they are due.
    fn write(&self, held: &Receiver<Held>, give_back: &Sender<Vec<u8>>) {
        while let Ok(Held { due, bytes, frame }) = held.recv() {
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                // A time of at most a second fits.
                let Ok(wait) = Timespec::try_from(wait) else { return };
                let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
                if poll(&mut stop, Some(&wait)) != Ok(0) {
                    return;
                }
            }
            self.send(&frame[..bytes]);
            // The reader may have ended.
            let _ = give_back.send(frame);
        }
    }

    /// A frame that the device does not take is lost, as on any link.
    fn send(&self, frame: &[u8]) {
        let _ = (&self.tap).write(frame);
    }
}

/// Strikes a share of the times it is asked.
struct Chance {
    share: Share,
    state: u64,
}

impl Chance {
    fn new(share: Share) -> Self {
        Self { share, state: RandomState::new().hash_one(0) }
    }

    fn strikes(&mut self) -> bool {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        mixed % u64::from(Share::ALL.millionths()) < u64::from(self.share.millionths())
    }
}

/// Numbers of the character devices in a namespace, by interface.
fn devices(namespace: &str) -> Result<BTreeMap<String, (u32, u32)>, Error> {
    let script = "for dev in /sys/class/net/*/tap*/dev; do echo \"$dev $(cat \"$dev\")\"; done";
    let mut command = tool::command("ip");
    let text = tool::output("ls", namespace, command.args(["netns", "exec", namespace, "sh", "-c", script]))?;
    let device = |line: &str| {
        let (path, numbers) = line.split_once(' ')?;
        let (major, minor) = numbers.split_once(':')?;
        Some((path.split('/').nth(4)?.to_owned(), (major.parse().ok()?, minor.parse().ok()?)))
    };
    Ok(text.lines().filter_map(device).collect())
}

/// Opens a character device by its numbers: names in `/dev` are the same in all namespaces, and clash.
fn open(bed: &str, (major, minor): (u32, u32)) -> Result<File, Error> {
    let doing = "opening a device of the testbed";
    let path = format!("/dev/pathcall-{bed}-{minor}");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor))
        .map_err(|errno| Error::io(doing)(errno.into()))?;
    let opened = rustix::fs::open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    std::fs::remove_file(&path).map_err(Error::io(doing))?;
    opened.map(File::from).map_err(|errno| Error::io(doing)(errno.into()))
}
