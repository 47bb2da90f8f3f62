//! The run beside others: step by step, and what others do for it.

use pathcall_endpoint::clone::{Pool, WorkId};
use pathcall_wire::Instant;

use super::judge::Wrong;
use super::payload::Tag;
use super::world::{CALLER, EVENTS_MAX, GAID, Happening, INCARNATION, Node, SERVER, World};
use crate::around::ELEMENT;
use crate::part::Part;

/// Work that a server has begun and somebody else does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    server: usize,
    incarnation: u32,
    work: WorkId,
    tag: Tag,
    /// Nobody did it.
    pub(crate) undone: bool,
}

/// Plays until every call is over and everything is forgotten.
impl Part for World<'_> {
    type Wrong = Wrong;

    fn next(&self) -> Option<Instant> {
        self.queue.next_at()
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let Some((at, happening)) = self.queue.pop() else { return Ok(()) };
        self.now = at;
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(Wrong::Endless(self.events));
        }
        self.mix(at.0);
        self.happens(happening)
    }

    fn host(&self) -> Option<usize> {
        let node = match self.queue.peek()? {
            Happening::Call(call) | Happening::GiveUp(call) => Node::Caller(self.plan.calls[*call].caller),
            Happening::Frame { to: node, .. } | Happening::Wake(node) | Happening::Told(node, _) => *node,
            Happening::Done { server, .. } => Node::Server(*server),
            Happening::Up | Happening::Install => Node::Element,
            _ => return None,
        };
        machine(node)
    }

    fn wait(&mut self, until: Instant) {
        self.queue.postpone(until);
    }

    fn over(&mut self) -> Result<(), Wrong> {
        self.tally.virtual_time = self.now.since(Instant(0));
        self.judge.over()?;
        self.nothing_is_left()
    }
}

impl World<'_> {
    /// The element loses all that it knows: it is there again at `up`, and is told of the pool at `told`, or never.
    pub(crate) fn element_fails(&mut self, now: Instant, up: Option<Instant>, told: Option<Instant>) {
        self.now = now;
        self.element_is_lost();
        self.queue.extend(up.map(|at| (at, Happening::Up)));
        self.queue.extend(told.map(|at| (at, Happening::Install)));
    }

    /// What has passed what stands before the element comes to it.
    pub(crate) fn passed(&mut self, now: Instant, bytes: Vec<u8>) -> Result<(), Wrong> {
        self.now = now;
        self.at_element(bytes)
    }

    /// Has a server begin with work that others do, if they do it there; otherwise it is done in its own time.
    pub(super) fn begun(&mut self, begun: Begun, in_time: Instant) {
        if machine(Node::Server(begun.server)).is_some_and(|host| self.around.is_placed(host)) {
            self.placed.push(begun);
        } else {
            self.done_at(begun, in_time);
        }
    }

    /// A server's work is done, or will be.
    pub(crate) fn done_at(&mut self, Begun { server, incarnation, work, tag, undone }: Begun, at: Instant) {
        self.queue.push(at, Happening::Done { server, incarnation, work, tag, undone });
    }

    /// What a server would have taken for its work, had it done it alone.
    pub(crate) fn service(&self, begun: &Begun) -> std::time::Duration {
        self.plan.servers[begun.server].service.0
    }

    /// The pool that the program was told of last, if it should know one.
    pub(crate) fn installed(&self) -> Option<Pool> {
        self.element.installed()
    }
}

impl Begun {
    pub(super) fn new(server: usize, incarnation: u32, work: WorkId, tag: Tag) -> Self {
        Self { server, incarnation, work, tag, undone: false }
    }
}

/// The pool, a caller with its incarnation, and a server, as frames name them.
pub(crate) fn names(caller: usize, server: usize) -> (u32, (u32, u32), u32) {
    (GAID, (CALLER + caller as u32, INCARNATION), SERVER + server as u32)
}

/// The host that a node is on.
pub(super) fn machine(node: Node) -> Option<usize> {
    match node {
        Node::Server(index) => Some(index),
        Node::Caller(index) => Some(index + 1),
        Node::Element => Some(ELEMENT),
        Node::Stranger => None,
    }
}
