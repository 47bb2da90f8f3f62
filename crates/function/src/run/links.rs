//! Frames under way between the element and its servers.

use std::collections::VecDeque;

use crate::place::ServerId;

/// A frame that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// At a server.
    ToServer(ServerId, Vec<u8>),
    /// At the element, from this server.
    ToElement(ServerId, Vec<u8>),
}

/// One link for each server, in both directions: what leaves later arrives no sooner.
#[derive(Debug)]
pub struct Links {
    to_server: Vec<Link>,
    to_element: Vec<Link>,
}

#[derive(Debug, Default)]
struct Link {
    frames: VecDeque<(u64, Vec<u8>)>,
    last_us: u64,
}

impl Link {
    fn send(&mut self, at_us: u64, frame: Vec<u8>) {
        self.last_us = self.last_us.max(at_us);
        self.frames.push_back((self.last_us, frame));
    }
}

impl Links {
    /// Nothing is under way.
    pub fn new(servers: usize) -> Self {
        let links = || (0..servers).map(|_| Link::default()).collect();
        Self { to_server: links(), to_element: links() }
    }

    /// A frame arrives at a server then, or behind the last one.
    pub fn send_to_server(&mut self, at_us: u64, server: ServerId, frame: Vec<u8>) {
        self.to_server[usize::from(server)].send(at_us, frame);
    }

    /// A frame arrives at the element then, or behind the last one.
    pub fn send_to_element(&mut self, at_us: u64, server: ServerId, frame: Vec<u8>) {
        self.to_element[usize::from(server)].send(at_us, frame);
    }

    /// When the next frame arrives.
    pub fn next_at(&self) -> Option<u64> {
        let first = |link: &Link| link.frames.front().map(|(at, _)| *at);
        self.to_server.iter().chain(&self.to_element).filter_map(first).min()
    }

    /// Whether frames are under way.
    pub fn busy(&self) -> bool {
        self.next_at().is_some()
    }

    /// A frame that has arrived by now: of several, the one that was to first.
    pub fn take(&mut self, now_us: u64) -> Option<Moved> {
        let at = self.next_at().filter(|at| *at <= now_us)?;
        let due = |link: &&mut Link| link.frames.front().is_some_and(|(due, _)| *due == at);
        let first = |(id, link): (usize, &mut Link)| link.frames.pop_front().map(|(_, frame)| (id as ServerId, frame));
        if let Some((id, frame)) = self.to_element.iter_mut().enumerate().find(|(_, link)| due(link)).and_then(first) {
            return Some(Moved::ToElement(id, frame));
        }
        let (id, frame) = self.to_server.iter_mut().enumerate().find(|(_, link)| due(link)).and_then(first)?;
        Some(Moved::ToServer(id, frame))
    }
}
