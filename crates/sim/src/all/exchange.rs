//! What parts do for each other: the function carries what comes to the element, and place has servers' work done.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Base;

use super::judge::Wrong;
use super::packet::{Flow, unwrap, wrap};
use super::world::World;
use crate::network::Datagram;
use crate::{clone, delegate};

/// What is on its way through the function.
#[derive(Default)]
pub(super) struct Held {
    /// By the number that the function has given it: between whom, and whether it has come out before.
    packets: BTreeMap<u32, (Flow, What, bool)>,
    /// Numbers of flows.
    flows: BTreeMap<Flow, u32>,
}

enum What {
    Map(Datagram),
    Clone(Vec<u8>),
    Delegate(delegate::part::Carried),
}

/// Work that is placed, by its request.
#[derive(Default)]
pub(super) struct Work(BTreeMap<usize, Whose>);

enum Whose {
    Clone(clone::part::Begun),
    Delegate(delegate::part::Begun),
}

impl What {
    fn payload(&self) -> &[u8] {
        match self {
            Self::Map(datagram) => &datagram.bytes,
            Self::Clone(bytes) => bytes,
            Self::Delegate(carried) => &carried.message,
        }
    }

    /// Between whom it travels, in a network of its ability's own.
    fn flow(&self) -> Flow {
        let between = |network: u8, from: u32, to: u32| {
            let address = |host: u32| [10, network, (host >> 8) as u8, host as u8];
            Flow { from: address(from), to: address(to) }
        };
        match self {
            Self::Delegate(carried) => {
                let (from, to) = carried.hosts();
                between(3, from, to)
            }
            Self::Map(Datagram { bytes, .. }) | Self::Clone(bytes) => {
                let network = if matches!(self, Self::Map(_)) { 1 } else { 2 };
                let ends = Base::new_checked(bytes.as_slice()).map(|base| (base.src(), base.dst()));
                let (from, to) = ends.unwrap_or_default();
                between(network, from, to)
            }
        }
    }
}

impl Work {
    /// Requests whose work has not ended.
    pub(super) fn open(&self) -> usize {
        self.0.len()
    }
}

impl World<'_> {
    /// What parts have left for each other gets there.
    pub(super) fn exchange(&mut self) -> Result<(), Wrong> {
        let mut carried: Vec<What> = Vec::new();
        carried.extend(self.map.iter_mut().flat_map(|part| part.carried.drain(..)).map(What::Map));
        carried.extend(self.clone.iter_mut().flat_map(|part| part.carried.drain(..)).map(What::Clone));
        carried.extend(self.delegate.iter_mut().flat_map(|part| part.carried.drain(..)).map(What::Delegate));
        carried.into_iter().try_for_each(|what| self.carry(what))?;
        self.comes_out()?;
        let mut begun: Vec<Whose> = Vec::new();
        begun.extend(self.clone.iter_mut().flat_map(|part| part.placed.drain(..)).map(Whose::Clone));
        begun.extend(self.delegate.iter_mut().flat_map(|part| part.placed.drain(..)).map(Whose::Delegate));
        begun.into_iter().try_for_each(|whose| self.place(whose))?;
        self.work_ends()
    }

    /// Something comes to the function.
    fn carry(&mut self, what: What) -> Result<(), Wrong> {
        let Some(function) = &mut self.function else { return Ok(()) };
        self.tally.carried += 1;
        let (flow, next) = (what.flow(), self.held.flows.len() as u32);
        let number = *self.held.flows.entry(flow).or_insert(next);
        let packet = wrap(flow, self.tally.carried as u16, what.payload());
        let sequence = function.carry(self.now, number, &packet)?;
        self.held.packets.insert(sequence, (flow, what, false));
        Ok(())
    }

    /// What has come out of the function goes on: as it went in, or something is wrong.
    fn comes_out(&mut self) -> Result<(), Wrong> {
        let passed = self.function.as_mut().map(|function| std::mem::take(&mut function.passed)).unwrap_or_default();
        for packet in passed {
            let sequence = packet.sequence;
            let Some((flow, what, again)) = self.held.packets.get_mut(&sequence) else {
                return Err(Wrong::Unsent(sequence));
            };
            if unwrap(&packet.payload) != Some((*flow, what.payload())) {
                return Err(Wrong::Changed(sequence));
            }
            let again = std::mem::replace(again, true);
            self.tally.again += u64::from(again);
            match what {
                What::Map(datagram) => {
                    let Some(map) = &mut self.map else { continue };
                    if again {
                        map.repeated();
                    }
                    map.passed(self.now, datagram.clone())?;
                }
                What::Clone(bytes) => {
                    self.clone.as_mut().map_or(Ok(()), |clone| clone.passed(self.now, bytes.clone()))?;
                }
                What::Delegate(carried) => {
                    self.delegate.as_mut().map_or(Ok(()), |delegate| delegate.passed(self.now, carried))?;
                }
            }
        }
        Ok(())
    }

    /// The function is not there any more: what is still on its way through it does not come.
    pub(super) fn front_is_gone(&mut self) -> Result<(), Wrong> {
        let packets = std::mem::take(&mut self.held.packets);
        let lost = || packets.values().filter(|(_, _, out)| !out);
        let of_map = lost().filter(|(_, what, _)| matches!(what, What::Map(_))).count() as u64;
        let all = lost().count() as u64;
        self.tally.held_back += all;
        if let Some(map) = &mut self.map {
            map.held_back(self.now, of_map);
        }
        let overflowed = self.function.as_ref().is_some_and(|function| function.overflowed > 0);
        let faulty = overflowed || self.stage.function.as_ref().is_none_or(crate::function::Plan::faulty);
        if all > 0 && !faulty { Err(Wrong::HeldBack(all)) } else { Ok(()) }
    }

    /// Has work done by the host that chooses paths, as long as its plan has requests.
    fn place(&mut self, whose: Whose) -> Result<(), Wrong> {
        let asked = self.place.as_mut().map_or(Ok(None), |place| place.ask(self.now))?;
        match asked {
            Some(request) => {
                self.tally.placed += 1;
                self.work.0.insert(request, whose);
                Ok(())
            }
            None => {
                self.ends(whose, None);
                Ok(())
            }
        }
    }

    /// Work that was placed and has ended.
    fn work_ends(&mut self) -> Result<(), Wrong> {
        let done = self.place.as_mut().map(|place| std::mem::take(&mut place.done)).unwrap_or_default();
        for (request, answered) in done {
            let whose = self.work.0.remove(&request).ok_or(Wrong::Nobody(request))?;
            self.tally.abandoned += u64::from(!answered);
            self.ends(whose, Some(answered));
        }
        Ok(())
    }

    /// Work ends now, done or not; `None`: who has it does it alone, in its own time.
    fn ends(&mut self, whose: Whose, done: Option<bool>) {
        let now = self.now;
        match whose {
            Whose::Clone(mut begun) => {
                let Some(clone) = &mut self.clone else { return };
                let alone = clone.service(&begun);
                begun.undone = done == Some(false);
                clone.done_at(begun, now + if done.is_none() { alone } else { Duration::ZERO });
            }
            Whose::Delegate(begun) => {
                let Some(delegate) = &mut self.delegate else { return };
                // What nobody did there its host does itself.
                let alone = if done == Some(true) { Duration::ZERO } else { begun.pause };
                delegate.steps_at(begun, now + alone);
            }
        }
    }
}
