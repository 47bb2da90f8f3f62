//! Rendezvous of a group: rank 0 listens under the group's name, creates the memory and distributes it to all ranks.
//!
//! ```text
//! rank r ── connect; rank, number of ranks, one end of its liveness socket ──▶ rank 0
//!        ◀── words, stage, liveness sockets of all other ranks ───────────────
//!        ── mapped ──────────────────────────────────────────────────────────▶
//! ```
//!
//! The other end of a liveness socket is open in its rank only: it closes when the process ends, for whatever reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::Config;
use super::error::{GroupError, JoinRefusal, RankLossReason};
use super::shared_memory::{SharedRows, SharedWords};
use crate::peer::{MemoryPeer, PeerListener, is_closed, liveness_pair, peer_user, wait, wait_readable};

/// First message of a rank: this magic, its rank and the number of ranks.
const MAGIC: [u8; 8] = *b"pcgroup1";
const HELLO_BYTES: usize = 16;
/// Interval of the connection attempts until rank 0 listens.
const RETRY: Duration = Duration::from_millis(2);

/// Kind of a message of rank 0, each with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Handout {
    Words = 1,
    Stage = 2,
    Liveness = 3,
    Refused = 4,
    Buffer = 5,
    NoBuffer = 6,
}

/// Result of the rendezvous.
#[derive(Debug)]
pub(super) struct Rendezvous {
    pub(super) words: SharedWords,
    pub(super) stage: SharedRows,
    pub(super) liveness: LivenessSockets,
    /// Connections: at rank 0 to the other ranks; at other ranks to rank 0.
    pub(super) peers: Vec<MemoryPeer>,
}

/// Meets the other ranks; `stage_bytes` is the size of each row of the stage.
///
/// # Errors
/// When other ranks do not join in time, or are refused.
pub(super) fn rendezvous(config: &Config, stage_bytes: usize) -> Result<Rendezvous, GroupError> {
    let deadline = Instant::now() + config.timeout;
    let name = format!("pathcall-group-{}", config.name);
    if config.rank == 0 {
        join_as_leader(config, &name, stage_bytes, deadline)
    } else {
        join_as_member(config, &name, stage_bytes, deadline)
    }
}

fn join_as_leader(
    config: &Config,
    name: &str,
    stage_bytes: usize,
    deadline: Instant,
) -> Result<Rendezvous, GroupError> {
    let (own, end) = liveness_pair()?;
    let mut listener = JoinListener::open(config, name, end.as_fd())?;
    while listener.missing_ranks().next().is_some() {
        listener.wait(deadline)?;
    }
    let joined: Vec<_> = listener.into_joined().collect();
    let no_memory = |source| GroupError::Memory { rank: 0, bytes: stage_bytes * config.ranks, source };
    let (words, words_memory) = SharedWords::create(config.ranks).map_err(no_memory)?;
    let (stage, stage_memory) = SharedRows::create(config.ranks, stage_bytes).map_err(no_memory)?;
    let mut others = vec![Some(end)];
    let mut peers = Vec::new();
    for (peer, end) in joined {
        peers.push(peer);
        others.push(Some(end));
    }
    for (k, peer) in peers.iter().enumerate() {
        let rank = k + 1;
        let lost = |_| GroupError::Lost { rank, how: RankLossReason::Died };
        send_handout(peer, Handout::Words, 0, words_memory.as_fd()).map_err(lost)?;
        send_handout(peer, Handout::Stage, 0, stage_memory.as_fd()).map_err(lost)?;
        for (of, end) in others.iter().enumerate().filter(|(of, _)| *of != rank) {
            send_handout(peer, Handout::Liveness, of as u32, end.as_ref().expect("all ranks have joined").as_fd())
                .map_err(lost)?;
        }
        // One rank after the other: the system limits the descriptors in flight.
        wait_readable(peer.as_fd(), deadline).map_err(|_| GroupError::Lost { rank, how: RankLossReason::Late })?;
        peer.receive_ready().map_err(lost)?;
    }
    others[0] = None;
    Ok(Rendezvous { words, stage, liveness: LivenessSockets { _own: own, others }, peers })
}

fn join_as_member(
    config: &Config,
    name: &str,
    stage_bytes: usize,
    deadline: Instant,
) -> Result<Rendezvous, GroupError> {
    let no_leader =
        || GroupError::Missing { name: config.name.clone(), missing: vec![0], waited: config.timeout, refused: None };
    let peer = loop {
        match MemoryPeer::connect(name.as_bytes()) {
            Ok(peer) => break peer,
            Err(error) if !is_not_listening(&error) => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => return Err(no_leader()),
            Err(_) => std::thread::sleep(RETRY),
        }
    };
    let (own, end) = liveness_pair()?;
    if peer_user(peer.as_fd())? != peer_user(own.as_fd())? {
        return Err(GroupError::User { name: config.name.clone() });
    }
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..12].copy_from_slice(&(config.rank as u32).to_be_bytes());
    hello[12..].copy_from_slice(&(config.ranks as u32).to_be_bytes());
    let died = |_| GroupError::Lost { rank: 0, how: RankLossReason::Died };
    peer.send_memory(&hello, end.as_fd()).map_err(died)?;
    drop(end);

    let next = || -> Result<_, GroupError> {
        let (kind, value, descriptor) = match receive_handout(&peer, deadline) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(GroupError::Lost { rank: 0, how: RankLossReason::Late });
            }
            other => other.map_err(died)?,
        };
        if kind == Handout::Refused as u32 {
            let reason = JoinRefusal::from_word(value);
            return Err(GroupError::Refused { name: config.name.clone(), rank: config.rank, reason });
        }
        Ok((value, descriptor))
    };
    let map_error = |source| GroupError::Memory { rank: config.rank, bytes: stage_bytes * config.ranks, source };
    let words = SharedWords::from_fd(&next()?.1, config.ranks).map_err(map_error)?;
    let stage = SharedRows::from_fd(&next()?.1, config.ranks, stage_bytes).map_err(map_error)?;
    let mut others: Vec<Option<OwnedFd>> = (0..config.ranks).map(|_| None).collect();
    for _ in 1..config.ranks {
        let (of, end) = next()?;
        if let Some(place) = others.get_mut(of as usize) {
            *place = Some(end);
        }
    }
    peer.send_ready().map_err(died)?;
    Ok(Rendezvous { words, stage, liveness: LivenessSockets { _own: own, others }, peers: vec![peer] })
}

/// Returns whether rank 0 does not listen yet, or its backlog is full.
fn is_not_listening(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Rank 0's listener for the other ranks.
struct JoinListener<'a> {
    config: &'a Config,
    listener: PeerListener,
    user: u32,
    /// Descriptor that a refused process gets instead of memory.
    placeholder: BorrowedFd<'a>,
    /// Connected processes without a first message.
    unidentified: Vec<MemoryPeer>,
    /// Joined ranks, from rank 1.
    joined: Vec<Option<(MemoryPeer, OwnedFd)>>,
    refused: Option<(usize, JoinRefusal)>,
}

impl<'a> JoinListener<'a> {
    fn open(config: &'a Config, name: &str, placeholder: BorrowedFd<'a>) -> Result<Self, GroupError> {
        let listener = PeerListener::bind(name.as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => GroupError::Taken { name: config.name.clone() },
            _ => error.into(),
        })?;
        let joined = (1..config.ranks).map(|_| None).collect();
        Ok(Self {
            config,
            listener,
            user: peer_user(placeholder)?,
            placeholder,
            unidentified: Vec::new(),
            joined,
            refused: None,
        })
    }

    fn missing_ranks(&self) -> impl Iterator<Item = usize> {
        self.joined.iter().enumerate().filter(|(_, joined)| joined.is_none()).map(|(k, _)| k + 1)
    }

    /// Waits for the next event, and handles it.
    fn wait(&mut self, deadline: Instant) -> Result<(), GroupError> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.unidentified.iter().map(|peer| PollFd::new(peer, PollFlags::IN)));
        // Of a joined rank, only the end is awaited.
        fds.extend(self.joined.iter().flatten().map(|(_, end)| PollFd::new(end, PollFlags::empty())));
        if wait(&mut fds, deadline)? == 0 {
            for (peer, _) in self.joined.iter().flatten() {
                // A process that misses this message sees the end of its connection.
                let _ = send_handout(peer, Handout::Refused, JoinRefusal::IncompleteGroup as u32, self.placeholder);
            }
            let (missing, waited) = (self.missing_ranks().collect(), self.config.timeout);
            return Err(GroupError::Missing { name: self.config.name.clone(), missing, waited, refused: self.refused });
        }
        drop(fds);
        for peer in std::mem::take(&mut self.unidentified) {
            match peer.receive_memory::<HELLO_BYTES>() {
                Ok((hello, end)) => self.handle_hello(peer, hello, end),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.unidentified.push(peer),
                Err(_) => {}
            }
        }
        for joined in &mut self.joined {
            if joined.as_ref().is_some_and(|(_, end)| is_closed(end.as_fd())) {
                *joined = None;
            }
        }
        match self.listener.accept() {
            Ok(peer) if peer_user(peer.as_fd())? == self.user => self.unidentified.push(peer),
            // That process checks the user itself, and gets no message.
            Ok(_) => self.refused = Some((0, JoinRefusal::OtherUser)),
            Err(error) if is_not_listening(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn handle_hello(&mut self, peer: MemoryPeer, hello: [u8; HELLO_BYTES], end: OwnedFd) {
        let number = |from| u32::from_be_bytes(std::array::from_fn(|i| hello[from + i])) as usize;
        let (rank, ranks) = (number(8), number(12));
        let place = rank.checked_sub(1).and_then(|k| self.joined.get_mut(k));
        match place {
            _ if hello[..8] != MAGIC => self.refuse(&peer, rank, JoinRefusal::InvalidMessage),
            _ if ranks != self.config.ranks => self.refuse(&peer, rank, JoinRefusal::RankCount),
            Some(place) if place.is_none() => *place = Some((peer, end)),
            Some(_) => self.refuse(&peer, rank, JoinRefusal::DuplicateRank),
            None => self.refuse(&peer, rank, JoinRefusal::InvalidMessage),
        }
    }

    fn refuse(&mut self, peer: &MemoryPeer, rank: usize, reason: JoinRefusal) {
        self.refused = Some((rank, reason));
        // A process that misses this message sees the end of its connection.
        let _ = send_handout(peer, Handout::Refused, reason as u32, self.placeholder);
    }

    fn into_joined(self) -> impl Iterator<Item = (MemoryPeer, OwnedFd)> {
        self.joined.into_iter().flatten()
    }
}

/// Liveness sockets of all other ranks, and this rank's own.
#[derive(Debug)]
pub(super) struct LivenessSockets {
    _own: OwnedFd,
    others: Vec<Option<OwnedFd>>,
}

impl LivenessSockets {
    /// Returns whether a rank's process has ended.
    pub(super) fn is_closed(&self, rank: usize) -> bool {
        self.others.get(rank).and_then(Option::as_ref).is_some_and(|end| is_closed(end.as_fd()))
    }
}

/// Sends a message with a descriptor; `value` depends on the kind.
pub(super) fn send_handout(peer: &MemoryPeer, kind: Handout, value: u32, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&(kind as u32).to_be_bytes());
    message[4..].copy_from_slice(&value.to_be_bytes());
    peer.send_memory(&message, descriptor)
}

/// Receives a message of rank 0.
///
/// # Errors
/// `TimedOut`, or the error of an ended peer.
pub(super) fn receive_handout(peer: &MemoryPeer, deadline: Instant) -> io::Result<(u32, u32, OwnedFd)> {
    wait_readable(peer.as_fd(), deadline)?;
    let (message, descriptor) = peer.receive_memory::<8>()?;
    let word = |from| u32::from_be_bytes(std::array::from_fn(|i| message[from + i]));
    Ok((word(0), word(4), descriptor))
}
