//! What is between hosts: delay, loss, repeats, a stranger; and what happens to hosts and pools.

use std::time::Duration;

use pathcall_endpoint::clone::{Pool, To};
use pathcall_wire::clone::{CLONE, ORIGINAL};
use pathcall_wire::{Base, CloneFrame, Flags, Kind};

use super::element::Leaving;
use super::judge::Wrong;
use super::part::machine;
use super::plan::Incident;
use super::world::{CALLER, Happening, INCARNATION, Node, SERVER, World};

/// Time after which the controller has noticed a server's death.
const NOTICED: Duration = Duration::from_millis(40);
/// Time after which everybody knows of another pool, at most.
const TOLD: Duration = Duration::from_millis(30);
/// How much later a very late copy comes, at most.
const LATE: Duration = Duration::from_millis(400);

impl World<'_> {
    /// Puts a frame on its way.
    pub(super) fn route(&mut self, from: Node, to: To, bytes: &[u8]) {
        let to = match to {
            To::Element => Node::Element,
            To::Endpoint(endpoint) => node(endpoint),
        };
        self.send(from, to, bytes);
    }

    fn send(&mut self, from: Node, to: Node, bytes: &[u8]) {
        self.tally.frames += 1;
        self.mix(bytes.len() as u64);
        let faulty = self.now < self.plan.faults_until;
        self.stranger(to, bytes);
        let cut = self.around.is_cut(self.now, machine(from), machine(to));
        let lost = faulty && self.random.happens(self.plan.loss) || cut;
        let repeated = faulty && self.random.happens(self.plan.repeat) && !cut;
        let late = faulty && self.random.happens(self.plan.late) && !cut;
        if lost {
            self.tally.lost += 1;
            self.line(from, || format!("LOST to {to:?}: {}", describe(bytes)));
        }
        self.tally.repeated += u64::from(repeated) + u64::from(late);
        let (shortest, longest) = self.plan.delay;
        for (comes, later) in [(!lost, Duration::ZERO), (repeated, Duration::ZERO), (late, LATE)] {
            let at = self.now + shortest + self.random.up_to(longest - shortest) + self.random.up_to(later);
            if comes {
                self.queue.push(at, Happening::Frame { from, to, bytes: bytes.to_vec() });
            }
        }
    }

    /// What a stranger makes of a frame that it has overheard: nothing of it may have an effect.
    fn stranger(&mut self, to: Node, bytes: &[u8]) {
        if self.now >= self.plan.faults_until || !self.random.happens(self.plan.forged) {
            return;
        }
        let mut forged = bytes.to_vec();
        let Ok(mut frame) = CloneFrame::new_checked(forged.as_mut_slice()) else { return };
        let (kind, junk) = (frame.kind(), self.random.bits());
        match (junk % 6, kind) {
            // A caller can't say what only an element may.
            (0 | 1, Kind::CloneRequest) if to == Node::Element => {
                frame.head_mut().set_clo(if junk & 64 == 0 { ORIGINAL } else { CLONE });
            }
            (_, Kind::CloneRequest) if to == Node::Element => frame.base_mut().set_src_incarnation(junk as u32 | 64),
            // An answer to a process that was here before, with the same number.
            (0 | 1, Kind::CloneReply) => {
                frame.base_mut().set_dst_incarnation(INCARNATION - 1);
                spoil(&mut forged, junk);
            }
            (2, Kind::CloneReply) => {
                frame.base_mut().set_src(SERVER + 90);
                spoil(&mut forged, junk);
            }
            (3, Kind::CloneReply) => {
                let flags = frame.base().flags() & !Flags::FROM_SERVER;
                frame.base_mut().set_flags(flags);
                spoil(&mut forged, junk);
            }
            _ => forged.truncate((junk >> 8) as usize % (bytes.len() + 1)),
        }
        self.tally.forged += 1;
        let at = self.now + self.random.up_to(self.plan.delay.1);
        self.queue.push(at, Happening::Frame { from: Node::Stranger, to, bytes: forged });
    }

    /// A frame comes to the element.
    pub(super) fn at_element(&mut self, bytes: Vec<u8>) -> Result<(), Wrong> {
        if self.element.silent {
            return Ok(());
        }
        // What a stranger makes of a request may be cloned first: then it is not the caller's, either.
        if let Ok(frame) = CloneFrame::new_checked(bytes.as_slice())
            && let Some(call) = self.call_of(&frame)
        {
            self.judge.steered(call, &frame);
        }
        let leaving = self.element.receive(self.now, bytes)?;
        for frame in leaving {
            self.leaves(&frame)?;
        }
        Ok(())
    }

    fn leaves(&mut self, Leaving { to, bytes, cloned }: &Leaving) -> Result<(), Wrong> {
        if *cloned
            && let Ok(frame) = CloneFrame::new_checked(bytes.as_slice())
            && let Some(call) = self.call_of(&frame)
        {
            self.tally.cloned += 1;
            self.judge.cloned(self.now, call, &frame)?;
        }
        self.send(Node::Element, node(*to), bytes);
        Ok(())
    }

    pub(super) fn incident(&mut self, incident: Incident) {
        self.tally.incidents += 1;
        self.line(Node::Element, || format!("{incident:?}"));
        match incident {
            Incident::Restart { silent } => {
                self.element_is_lost();
                self.queue.extend(silent.map(|silent| (self.now + silent, Happening::Install)));
            }
            Incident::Kill { server, back } => {
                self.servers[server].worker = None;
                match back {
                    // It may be back before anybody has noticed.
                    Some(back) => self.queue.push(self.now + back, Happening::Back(server)),
                    None => self.queue.push(self.now + NOTICED, Happening::Member(server, false)),
                }
            }
            Incident::Move { server } => {
                let member = self.pool.servers.contains(&(SERVER + server as u32));
                self.member(server, !member);
            }
        }
    }

    /// The element loses all that it knows, and is silent.
    pub(super) fn element_is_lost(&mut self) {
        self.element = self.element.lost(self.plan);
        self.element.silent = true;
    }

    /// A server joins the pool, or leaves it; everybody hears of it sooner or later.
    pub(super) fn member(&mut self, server: usize, member: bool) {
        let endpoint = SERVER + server as u32;
        self.pool.servers.retain(|other| *other != endpoint);
        if member {
            let at = self.random.index(self.pool.servers.len() + 1);
            self.pool.servers.insert(at, endpoint);
        }
        self.pool.version += 1;
        let everybody = (0..self.callers.len()).map(Node::Caller).chain((0..self.servers.len()).map(Node::Server));
        for node in everybody.chain([Node::Element]).collect::<Vec<_>>() {
            let at = self.now + self.random.up_to(TOLD);
            self.queue.push(at, Happening::Told(node, self.pool.clone()));
        }
    }

    /// Somebody hears of the pool as it was some time ago; what is older than what it knows is not told.
    pub(super) fn told(&mut self, node: Node, pool: Pool) -> Result<(), Wrong> {
        match node {
            Node::Caller(index) => {
                if pool.version > self.callers[index].0.servers().version {
                    self.callers[index].0.pool(self.now, pool);
                }
            }
            Node::Server(index) => {
                let endpoint = SERVER + index as u32;
                let sid = self.pool.servers.iter().position(|server| *server == endpoint);
                if let (Some(worker), Some(sid)) = (&mut self.servers[index].worker, sid) {
                    worker.moved(sid as u16);
                }
            }
            Node::Element => self.install(),
            Node::Stranger => {}
        }
        self.drain(node)
    }

    /// The element is told who is there, unless nobody can.
    pub(super) fn install(&mut self) {
        let servers =
            self.servers.iter().enumerate().map(|(index, server)| (SERVER + index as u32, server.incarnation));
        let callers = (0..self.callers.len() as u32).map(|index| (CALLER + index, INCARNATION));
        let endpoints: Vec<_> = servers.chain(callers).collect();
        // Tables are large enough for every plan.
        let installed = self.element.install(&self.pool, &endpoints);
        debug_assert!(installed.is_ok(), "{installed:?}");
    }
}

fn node(endpoint: u32) -> Node {
    match endpoint.checked_sub(CALLER) {
        Some(caller) => Node::Caller(caller as usize),
        None => Node::Server(endpoint.saturating_sub(SERVER) as usize),
    }
}

/// Makes the payload another one.
fn spoil(bytes: &mut [u8], junk: u64) {
    if let Some(last) = bytes.last_mut() {
        *last ^= (junk >> 32) as u8 | 1;
    }
}

/// What a frame is, for people.
pub(super) fn describe(bytes: &[u8]) -> String {
    let Ok(frame) = CloneFrame::new_checked(bytes) else {
        return match Base::new_checked(bytes) {
            Ok(base) => format!("kind {}", base.kind()),
            Err(error) => format!("{} bytes: {error}", bytes.len()),
        };
    };
    let (base, head) = (frame.base(), frame.head().repr());
    format!(
        "{:?} {}→{} seq {} attempt {} part {}/{} id {:x} grp {} v{} sid {} state {} clo {} idx {} by {} flags {:x}/{:x}",
        frame.kind(),
        base.src(),
        base.dst(),
        base.seq(),
        head.attempt,
        head.part,
        head.parts,
        head.req_id,
        head.grp,
        base.epoch(),
        head.sid,
        head.state,
        head.clo,
        head.idx,
        head.switch_id,
        base.flags(),
        head.flags
    )
}
