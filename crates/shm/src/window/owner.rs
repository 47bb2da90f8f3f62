//! Owner's thread of a shared window: lets other processes open it, and undoes the write of one that has ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::map::WindowMap;
use super::sequence_lock::{Holder, LockedBytes};
use super::{OPENERS_MAX, OWNER, Welcome};
use crate::peer::{MemoryPeer, PeerListener, is_closed, liveness_pair, peer_user};

/// Pause after an error of the system, for example when this process can open no more descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// Running thread. Dropping it ends the thread, and closes all connections.
#[derive(Debug)]
pub(super) struct OwnerThread {
    /// End of a socket whose close stops the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl OwnerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn start(
        listener: PeerListener,
        descriptor: OwnedFd,
        memory: Arc<LockedBytes<WindowMap>>,
    ) -> io::Result<Self> {
        let (stop, stopped) = liveness_pair()?;
        let user = peer_user(stop.as_fd())?;
        let openers = Openers { listener, stopped, user, descriptor, memory, peers: Vec::new() };
        let thread = thread::Builder::new().name("shared-window".into()).spawn(move || openers.serve())?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for OwnerThread {
    fn drop(&mut self) {
        self.stop = None;
        // It does not panic; if it did, the connections are closed all the same.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Processes that have opened the window.
struct Openers {
    listener: PeerListener,
    stopped: OwnedFd,
    user: u32,
    descriptor: OwnedFd,
    memory: Arc<LockedBytes<WindowMap>>,
    /// Connections by number of the holder, from the one after the owner's.
    peers: Vec<Option<MemoryPeer>>,
}

impl Openers {
    fn serve(mut self) {
        loop {
            let mut fds =
                vec![PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stopped, PollFlags::empty())];
            // Of these, only the end is awaited.
            fds.extend(self.peers.iter().flatten().map(|peer| PollFd::new(peer, PollFlags::empty())));
            let polled = poll(&mut fds, None);
            drop(fds);
            if is_closed(self.stopped.as_fd()) {
                return;
            }
            self.release_ended();
            if polled.is_err() || self.accept().is_err() {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Undoes the writes of processes that have ended. A process closes its sockets after its last access.
    fn release_ended(&mut self) {
        for (number, place) in (OWNER + 1..).zip(&mut self.peers) {
            if place.take_if(|peer| is_closed(peer.as_fd())).is_some() {
                self.memory.undo(number, OWNER);
            }
        }
    }

    /// Lets the next process in, if it belongs to the same user and there is a free number.
    fn accept(&mut self) -> io::Result<()> {
        let peer = match self.listener.accept() {
            Ok(peer) => peer,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let free = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        // A refused process sees the end of its connection.
        if free >= OPENERS_MAX || peer_user(peer.as_fd())? != self.user {
            return Ok(());
        }
        let welcome = Welcome { holder: OWNER + 1 + free as Holder, len: self.memory.len() };
        if peer.send_memory(&welcome.to_bytes(), self.descriptor.as_fd()).is_ok() {
            self.peers.resize_with(self.peers.len().max(free + 1), || None);
            self.peers[free] = Some(peer);
        }
        Ok(())
    }
}
