//! Shared window: memory that processes of one user and host read and write, each access as a whole.
//!
//! ```text
//! SharedWindow::create(name, len) ── owner's thread ◀── socket ── SharedWindow::open(name)
//!                    └──── read, write ────▶ memory ◀──── read, write ────┘
//! ```
//!
//! [`read`](SharedWindow::read) and [`write`](SharedWindow::write) of a window that no process is writing make no
//! system call and allocate nothing.
//!
//! **Atomicity.** A read sees a concurrent write wholly or not at all. Writes exclude each other by a lock in the
//! memory, which names its holder. A read repeats itself while a write changes the memory, and takes the lock after
//! some repeats. Whoever has waited for the lock for long gets it next, so that busy writers cannot keep it.
//!
//! **A process that ends during a write**, at any instruction: the write is undone, and the window goes on with the old
//! bytes. The owner's thread does that for other processes, and the next process that waits does it for the owner. Until
//! then, and while a live holder of the lock is stopped, accesses wait; after [`SharedWindow::timeout`] they fail with
//! [`SharedWindowError::Locked`]. The same happens if another process ends during a write after the owner has ended,
//! because only the owner knows of it. The memory takes twice the window's length, for the old bytes.
//!
//! **The owner's end** leaves the memory as it is, until the last process that has opened it drops it:
//! [`SharedWindow::owner_has_ended`] tells. New processes cannot open it, and its name is free.
//!
//! **A hostile process** of the same user can write anything into the memory. Other processes then read wrong bytes, or
//! get errors; offsets and lengths are checked against private copies.

mod error;
mod map;
mod owner;
mod sequence_lock;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub use crate::group::NAME_MAX;
pub use error::SharedWindowError;

use map::WindowMap;
use owner::OwnerThread;
use sequence_lock::{Holder, Locked, LockedBytes};

use crate::group;
use crate::peer::{MemoryPeer, PeerListener, is_closed, liveness_pair, peer_user, wait_readable};

/// Longest window, bytes.
pub const LEN_MAX: usize = 1 << 36;
/// Processes that may have opened a window at the same time.
pub const OPENERS_MAX: usize = 256;
/// Default of [`SharedWindow::timeout`].
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of opening a window.
const OPEN_TIMEOUT: Duration = group::TIMEOUT;
/// Repeats of a read, or of an attempt to lock, before the next means.
const SPINS: u32 = 100;
/// Reads of more bytes take the lock after one repeat.
const LONG_READ: usize = 4 << 10;
/// Yields of an attempt to lock before it sleeps.
const YIELDS: u32 = 20;
/// Sleep between two attempts to lock, and between two attempts to connect.
const PAUSE: Duration = Duration::from_micros(200);
/// Pauses in which a process gives way to one that has waited for the lock for long, at most.
const GIVE_WAY_MAX: u32 = 10;
/// Number of the owner as a holder of the lock. Other processes have the numbers after it.
const OWNER: Holder = 1;

/// Message of the owner to a process that opens the window, with the memory's descriptor.
struct Welcome {
    holder: Holder,
    len: usize,
}

impl Welcome {
    const MAGIC: [u8; 8] = *b"pcwindw1";
    const BYTES: usize = 24;

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&Self::MAGIC);
        bytes[8..16].copy_from_slice(&u64::from(self.holder).to_be_bytes());
        bytes[16..].copy_from_slice(&(self.len as u64).to_be_bytes());
        bytes
    }

    fn parse(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |from| u64::from_be_bytes(std::array::from_fn(|i| bytes[from + i]));
        let (holder, len) = (Holder::try_from(number(8)).ok()?, usize::try_from(number(16)).ok()?);
        (bytes[..8] == Self::MAGIC && holder > OWNER && (1..=LEN_MAX).contains(&len)).then_some(Self { holder, len })
    }
}

/// Memory that several processes read and write; see the [module](self).
#[derive(Debug)]
pub struct SharedWindow {
    name: String,
    memory: Arc<LockedBytes<WindowMap>>,
    holder: Holder,
    process: u32,
    timeout: Duration,
    role: WindowRole,
}

#[derive(Debug)]
enum WindowRole {
    Owner {
        _thread: OwnerThread,
    },
    /// Connection to the owner, which closes when either ends.
    Opener {
        owner: MemoryPeer,
    },
}

impl SharedWindow {
    /// Creates a window of `len` zero bytes. The name is unique in the network namespace at a time.
    ///
    /// # Errors
    /// When the name or the length is invalid, the name is taken, or the host does not have so much shared memory.
    pub fn create(name: &str, len: usize) -> Result<Self, SharedWindowError> {
        let socket = socket_name(name)?;
        if !(1..=LEN_MAX).contains(&len) {
            return Err(SharedWindowError::Length { name: name.into(), got: len });
        }
        let listener = PeerListener::bind(socket.as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => SharedWindowError::Taken { name: name.into() },
            _ => error.into(),
        })?;
        let no_memory = |source| SharedWindowError::Memory { name: name.into(), bytes: map::size(len), source };
        let (map, descriptor) = WindowMap::create(&socket, len).map_err(no_memory)?;
        let memory = Arc::new(LockedBytes::new(map, len));
        let thread = OwnerThread::start(listener, descriptor, Arc::clone(&memory))?;
        Ok(Self::new(name, memory, OWNER, WindowRole::Owner { _thread: thread }))
    }

    /// Opens the window of another process, which must belong to the same user. Waits for the owner, at most a minute.
    ///
    /// # Errors
    /// When no window has this name, or its owner refuses this process or does not answer.
    pub fn open(name: &str) -> Result<Self, SharedWindowError> {
        let socket = socket_name(name)?;
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let silent = || SharedWindowError::Silent { name: name.into(), waited: OPEN_TIMEOUT };
        let owner = loop {
            match MemoryPeer::connect(socket.as_bytes()) {
                Ok(owner) => break owner,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(SharedWindowError::Unknown { name: name.into() });
                }
                // Other processes are connecting, too.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                return Err(silent());
            }
            thread::sleep(PAUSE);
        };
        if peer_user(owner.as_fd())? != peer_user(liveness_pair()?.0.as_fd())? {
            return Err(SharedWindowError::User { name: name.into() });
        }
        wait_readable(owner.as_fd(), deadline).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => silent(),
            _ => error.into(),
        })?;
        let refused = || SharedWindowError::Refused { name: name.into() };
        let (welcome, descriptor) = owner.receive_memory().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => refused(),
            _ => error.into(),
        })?;
        let Welcome { holder, len } = Welcome::parse(welcome).ok_or_else(refused)?;
        let no_memory = |source| SharedWindowError::Memory { name: name.into(), bytes: map::size(len), source };
        let map = WindowMap::from_fd(&descriptor, len).map_err(no_memory)?;
        Ok(Self::new(name, Arc::new(LockedBytes::new(map, len)), holder, WindowRole::Opener { owner }))
    }

    fn new(name: &str, memory: Arc<LockedBytes<WindowMap>>, holder: Holder, role: WindowRole) -> Self {
        Self { name: name.into(), memory, holder, process: std::process::id(), timeout: TIMEOUT, role }
    }

    /// Sets the time that an access waits for the lock; the default is [`TIMEOUT`].
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Name of the window.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length, bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns whether the owner has dropped the window, or its process has ended. Makes a system call.
    #[must_use]
    pub fn owner_has_ended(&self) -> bool {
        match &self.role {
            WindowRole::Owner { .. } => false,
            WindowRole::Opener { owner } => is_closed(owner.as_fd()),
        }
    }

    /// Reads bytes from an offset. Also possible after the owner's end.
    ///
    /// # Errors
    /// [`SharedWindowError::Outside`], [`SharedWindowError::Locked`]; `to` has no meaning then.
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), SharedWindowError> {
        self.check(at, to.len())?;
        if self.memory.try_read(at, to) { Ok(()) } else { self.read_contended(at, to) }
    }

    /// Writes bytes from an offset. Also possible after the owner's end.
    ///
    /// # Errors
    /// [`SharedWindowError::Outside`], [`SharedWindowError::Locked`]; no byte was written.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), SharedWindowError> {
        self.check(at, bytes.len())?;
        let locked = self.lock()?;
        self.memory.write(locked, at, bytes);
        Ok(())
    }

    #[inline]
    fn check(&self, at: usize, len: usize) -> Result<(), SharedWindowError> {
        if self.memory.contains(at, len) {
            return Ok(());
        }
        Err(SharedWindowError::Outside { name: self.name.clone(), has: self.len(), at, len })
    }

    /// Reads while other processes write.
    #[cold]
    fn read_contended(&self, at: usize, to: &mut [u8]) -> Result<(), SharedWindowError> {
        // A long read that is repeated takes as long as many writes.
        let repeats = if to.len() > LONG_READ { 1 } else { SPINS };
        for _ in 0..repeats {
            std::hint::spin_loop();
            if self.memory.try_read(at, to) {
                return Ok(());
            }
        }
        let locked = self.lock()?;
        self.memory.read_locked(locked, at, to);
        Ok(())
    }

    /// Takes the lock, at most within the timeout.
    fn lock(&self) -> Result<Locked, SharedWindowError> {
        if self.memory.is_wanted() {
            self.give_way();
        }
        for attempt in 0..SPINS + YIELDS {
            match self.memory.try_lock(self.holder, self.process) {
                Ok(locked) => return Ok(locked),
                Err(_) if attempt < SPINS => std::hint::spin_loop(),
                Err(_) => thread::yield_now(),
            }
        }
        self.sleep_for_lock()
    }

    /// Lets one that has waited for long take the lock first.
    #[cold]
    fn give_way(&self) {
        for _ in 0..GIVE_WAY_MAX {
            thread::sleep(PAUSE);
            if !self.memory.is_wanted() {
                return;
            }
        }
        // It may have ended. If not, it asks again.
        self.memory.set_wanted(false);
    }

    #[cold]
    fn sleep_for_lock(&self) -> Result<Locked, SharedWindowError> {
        let begun = Instant::now();
        loop {
            let locked = self.memory.try_lock(self.holder, self.process);
            let is_late = begun.elapsed() >= self.timeout;
            self.memory.set_wanted(locked.is_err() && !is_late);
            let holder = match locked {
                Ok(locked) => return Ok(locked),
                Err(holder) => holder,
            };
            if is_late {
                let (name, process) = (self.name.clone(), self.memory.process());
                return Err(SharedWindowError::Locked { name, process, waited: self.timeout });
            }
            if holder != OWNER || !self.owner_has_ended() || !self.memory.undo(OWNER, self.holder) {
                thread::sleep(PAUSE);
            }
        }
    }
}

/// Name of the owner's socket.
fn socket_name(name: &str) -> Result<String, SharedWindowError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(SharedWindowError::Name { got: name.len() });
    }
    Ok(format!("pathcall-window-{name}"))
}

#[cfg(test)]
mod tests;
