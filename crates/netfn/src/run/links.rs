//! Links between the element and its servers, with the frames in flight.

use std::collections::VecDeque;

use crate::place::ServerId;

/// Frame that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum ArrivedFrame {
    /// Frame for a server.
    ToServer(ServerId, Vec<u8>),
    /// Frame for the element, from this server.
    ToElement(ServerId, Vec<u8>),
}

/// Links of all servers, in both directions, without reordering.
#[derive(Debug)]
pub struct InMemoryLinks {
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

impl InMemoryLinks {
    /// Idle links.
    pub fn new(servers: usize) -> Self {
        let links = || (0..servers).map(|_| Link::default()).collect();
        Self { to_server: links(), to_element: links() }
    }

    /// Sends a frame to a server; it arrives at `at_us`, or after the frame before it.
    pub fn send_to_server(&mut self, at_us: u64, server: ServerId, frame: Vec<u8>) {
        self.to_server[usize::from(server)].send(at_us, frame);
    }

    /// Sends a frame to the element; it arrives at `at_us`, or after the frame before it.
    pub fn send_to_element(&mut self, at_us: u64, server: ServerId, frame: Vec<u8>) {
        self.to_element[usize::from(server)].send(at_us, frame);
    }

    /// Arrival time of the next frame.
    pub fn next_at(&self) -> Option<u64> {
        let first = |link: &Link| link.frames.front().map(|(at, _)| *at);
        self.to_server.iter().chain(&self.to_element).filter_map(first).min()
    }

    /// Whether frames are in flight.
    pub fn busy(&self) -> bool {
        self.next_at().is_some()
    }

    /// Removes and returns the earliest frame that has arrived by `now_us`.
    pub fn take(&mut self, now_us: u64) -> Option<ArrivedFrame> {
        let at = self.next_at().filter(|at| *at <= now_us)?;
        let is_due = |link: &&mut Link| link.frames.front().is_some_and(|(due, _)| *due == at);
        let first = |(id, link): (usize, &mut Link)| link.frames.pop_front().map(|(_, frame)| (id as ServerId, frame));
        if let Some((id, frame)) = self.to_element.iter_mut().enumerate().find(|(_, link)| is_due(link)).and_then(first)
        {
            return Some(ArrivedFrame::ToElement(id, frame));
        }
        let (id, frame) = self.to_server.iter_mut().enumerate().find(|(_, link)| is_due(link)).and_then(first)?;
        Some(ArrivedFrame::ToServer(id, frame))
    }
}
