//! How the ranks of a group meet: rank 0 listens under the group's name, makes the memory and gives it to all.
//!
//! ```text
//! rank r ── connect; "I am r of n", the end of a line that lives as long as I ──▶ rank 0
//!        ◀── words, stage, the end of every other rank's line ───────────────────
//!        ── mapped ─────────────────────────────────────────────────────────────▶
//! ```
//!
//! A line is a socket whose other end only its rank has: it ends with the process, however that goes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::time::Timespec;

use super::Config;
use super::area::{Rows, Words};
use super::error::{GroupError, How, Refusal};
use crate::peer::{Listener, Peer};

/// What a rank says first: this, its number and how many there are.
const MAGIC: [u8; 8] = *b"pcgroup1";
const HELLO_BYTES: usize = 16;
/// How long until one tries again whether rank 0 listens: a name tells nobody that it is taken.
const RETRY: Duration = Duration::from_millis(2);

/// What rank 0 gives, each with a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Gift {
    Words = 1,
    Stage = 2,
    Life = 3,
    Refused = 4,
    Buffer = 5,
    NoBuffer = 6,
}

/// What a rank has after it has met the others.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) words: Words,
    pub(super) stage: Rows,
    pub(super) lives: Lives,
    /// To the others from rank 0; to rank 0 from others.
    pub(super) peers: Vec<Peer>,
}

/// Meets the others; `stage_bytes` are those of each row of the stage.
///
/// # Errors
/// When they do not come in time, or not as they should.
pub(super) fn meet(config: &Config, stage_bytes: usize) -> Result<Met, GroupError> {
    let deadline = Instant::now() + config.timeout;
    let name = format!("pathcall-group-{}", config.name);
    if config.rank == 0 {
        lead(config, &name, stage_bytes, deadline)
    } else {
        follow(config, &name, stage_bytes, deadline)
    }
}

fn lead(config: &Config, name: &str, stage_bytes: usize, deadline: Instant) -> Result<Met, GroupError> {
    let (own, end) = line()?;
    let mut lobby = Lobby::open(config, name, end.as_fd())?;
    while lobby.missing().next().is_some() {
        lobby.wait(deadline)?;
    }
    let come: Vec<_> = lobby.into_come().collect();
    let unmade = |source| GroupError::Memory { rank: 0, bytes: stage_bytes * config.ranks, source };
    let (words, words_memory) = Words::make(config.ranks).map_err(unmade)?;
    let (stage, stage_memory) = Rows::make(config.ranks, stage_bytes).map_err(unmade)?;
    let mut others = vec![Some(end)];
    let mut peers = Vec::new();
    for (peer, end) in come {
        peers.push(peer);
        others.push(Some(end));
    }
    for (k, peer) in peers.iter().enumerate() {
        let rank = k + 1;
        let lost = |_| GroupError::Lost { rank, how: How::Died };
        give(peer, Gift::Words, 0, words_memory.as_fd()).map_err(lost)?;
        give(peer, Gift::Stage, 0, stage_memory.as_fd()).map_err(lost)?;
        for (of, end) in others.iter().enumerate().filter(|(of, _)| *of != rank) {
            give(peer, Gift::Life, of as u32, end.as_ref().expect("all are there").as_fd()).map_err(lost)?;
        }
        // One after the other: the system bounds the descriptors that are on their way.
        until(peer.as_fd(), deadline).map_err(|_| GroupError::Lost { rank, how: How::Late })?;
        peer.is_welcome().map_err(lost)?;
    }
    others[0] = None;
    Ok(Met { words, stage, lives: Lives { _own: own, others }, peers })
}

fn follow(config: &Config, name: &str, stage_bytes: usize, deadline: Instant) -> Result<Met, GroupError> {
    let alone =
        || GroupError::Missing { name: config.name.clone(), missing: vec![0], waited: config.timeout, refused: None };
    let peer = loop {
        match Peer::connect(name.as_bytes()) {
            Ok(peer) => break peer,
            Err(error) if !is_early(&error) => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => return Err(alone()),
            Err(_) => std::thread::sleep(RETRY),
        }
    };
    let (own, end) = line()?;
    if user(peer.as_fd())? != user(own.as_fd())? {
        return Err(GroupError::User { name: config.name.clone() });
    }
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..12].copy_from_slice(&(config.rank as u32).to_be_bytes());
    hello[12..].copy_from_slice(&(config.ranks as u32).to_be_bytes());
    let died = |_| GroupError::Lost { rank: 0, how: How::Died };
    peer.give(&hello, end.as_fd()).map_err(died)?;
    drop(end);

    let next = || -> Result<_, GroupError> {
        let (gift, value, descriptor) = match take(&peer, deadline) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Err(GroupError::Lost { rank: 0, how: How::Late });
            }
            other => other.map_err(died)?,
        };
        if gift == Gift::Refused as u32 {
            let why = Refusal::from_word(value);
            return Err(GroupError::Refused { name: config.name.clone(), rank: config.rank, why });
        }
        Ok((value, descriptor))
    };
    let unmapped = |source| GroupError::Memory { rank: config.rank, bytes: stage_bytes * config.ranks, source };
    let words = Words::take(&next()?.1, config.ranks).map_err(unmapped)?;
    let stage = Rows::take(&next()?.1, config.ranks, stage_bytes).map_err(unmapped)?;
    let mut others: Vec<Option<OwnedFd>> = (0..config.ranks).map(|_| None).collect();
    for _ in 1..config.ranks {
        let (of, end) = next()?;
        if let Some(place) = others.get_mut(of as usize) {
            *place = Some(end);
        }
    }
    peer.welcome().map_err(died)?;
    Ok(Met { words, stage, lives: Lives { _own: own, others }, peers: vec![peer] })
}

/// Nobody listens yet, or so many have just come.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Where rank 0 takes in the others.
struct Lobby<'a> {
    config: &'a Config,
    listener: Listener,
    user: u32,
    /// What a refused one gets in place of memory.
    spare: BorrowedFd<'a>,
    /// Connected, but they have not said who they are.
    silent: Vec<Peer>,
    /// From rank 1 on.
    come: Vec<Option<(Peer, OwnedFd)>>,
    refused: Option<(usize, Refusal)>,
}

impl<'a> Lobby<'a> {
    fn open(config: &'a Config, name: &str, spare: BorrowedFd<'a>) -> Result<Self, GroupError> {
        let listener = Listener::bind(name.as_bytes()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => GroupError::Taken { name: config.name.clone() },
            _ => error.into(),
        })?;
        let come = (1..config.ranks).map(|_| None).collect();
        Ok(Self { config, listener, user: user(spare)?, spare, silent: Vec::new(), come, refused: None })
    }

    fn missing(&self) -> impl Iterator<Item = usize> {
        self.come.iter().enumerate().filter(|(_, come)| come.is_none()).map(|(k, _)| k + 1)
    }

    /// Waits for something to happen, and takes it in.
    fn wait(&mut self, deadline: Instant) -> Result<(), GroupError> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.silent.iter().map(|peer| PollFd::new(peer, PollFlags::IN)));
        // Of those who have come only their end is heard.
        fds.extend(self.come.iter().flatten().map(|(_, end)| PollFd::new(end, PollFlags::empty())));
        if wait(&mut fds, deadline)? == 0 {
            for (peer, _) in self.come.iter().flatten() {
                // One that does not hear it sees the end of the line.
                let _ = give(peer, Gift::Refused, Refusal::Missing as u32, self.spare);
            }
            let (missing, waited) = (self.missing().collect(), self.config.timeout);
            return Err(GroupError::Missing { name: self.config.name.clone(), missing, waited, refused: self.refused });
        }
        drop(fds);
        for peer in std::mem::take(&mut self.silent) {
            match peer.take::<HELLO_BYTES>() {
                Ok((hello, end)) => self.hear(peer, hello, end),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.silent.push(peer),
                Err(_) => {}
            }
        }
        for come in &mut self.come {
            if come.as_ref().is_some_and(|(_, end)| is_over(end.as_fd())) {
                *come = None;
            }
        }
        match self.listener.accept() {
            Ok(peer) if user(peer.as_fd())? == self.user => self.silent.push(peer),
            // It sees by itself whose group this is, and gets nothing from here.
            Ok(_) => self.refused = Some((0, Refusal::User)),
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn hear(&mut self, peer: Peer, hello: [u8; HELLO_BYTES], end: OwnedFd) {
        let number = |from| u32::from_be_bytes(std::array::from_fn(|i| hello[from + i])) as usize;
        let (rank, ranks) = (number(8), number(12));
        let place = rank.checked_sub(1).and_then(|k| self.come.get_mut(k));
        match place {
            _ if hello[..8] != MAGIC => self.refuse(&peer, rank, Refusal::Stranger),
            _ if ranks != self.config.ranks => self.refuse(&peer, rank, Refusal::Ranks),
            Some(place) if place.is_none() => *place = Some((peer, end)),
            Some(_) => self.refuse(&peer, rank, Refusal::Twice),
            None => self.refuse(&peer, rank, Refusal::Stranger),
        }
    }

    fn refuse(&mut self, peer: &Peer, rank: usize, why: Refusal) {
        self.refused = Some((rank, why));
        // One that does not hear it sees the end of the line.
        let _ = give(peer, Gift::Refused, why as u32, self.spare);
    }

    fn into_come(self) -> impl Iterator<Item = (Peer, OwnedFd)> {
        self.come.into_iter().flatten()
    }
}

/// Lines of all other ranks, and this one's own.
#[derive(Debug)]
pub(super) struct Lives {
    _own: OwnedFd,
    others: Vec<Option<OwnedFd>>,
}

impl Lives {
    /// Whether a rank's process has ended.
    pub(super) fn is_over(&self, rank: usize) -> bool {
        self.others.get(rank).and_then(Option::as_ref).is_some_and(|end| is_over(end.as_fd()))
    }
}

/// A line: the end that this process keeps, and the one that others get.
fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

fn is_over(end: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// Whose process is at the other end.
fn user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(socket_peercred(socket)?.uid.as_raw())
}

/// Gives a rank something; `value` says more about it.
pub(super) fn give(peer: &Peer, gift: Gift, value: u32, what: BorrowedFd<'_>) -> io::Result<()> {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&(gift as u32).to_be_bytes());
    message[4..].copy_from_slice(&value.to_be_bytes());
    peer.give(&message, what)
}

/// Takes what rank 0 gives.
///
/// # Errors
/// `TimedOut`, or that of a peer that is gone.
pub(super) fn take(peer: &Peer, deadline: Instant) -> io::Result<(u32, u32, OwnedFd)> {
    until(peer.as_fd(), deadline)?;
    let (message, what) = peer.take::<8>()?;
    let word = |from| u32::from_be_bytes(std::array::from_fn(|i| message[from + i]));
    Ok((word(0), word(4), what))
}

/// Waits until something can be read, be it the end.
fn until(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    if wait(&mut fds, deadline)? == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

/// Waits until one of them is ready; how many are, none at the deadline.
fn wait(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(fds, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}
