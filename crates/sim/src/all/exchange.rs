//! Exchange between parts: the network function carries the other parts' packets, and the path selector runs their
//! work.

use std::collections::BTreeMap;
use std::time::Duration;

use pathcall_wire::Base;

use super::checker::CombinedViolation;
use super::packet::{Flow, unwrap, wrap};
use super::world::CombinedWorld;
use crate::map::network::Datagram;
use crate::{clone, delegate};

/// Packets that are inside the network function.
#[derive(Default)]
pub(super) struct FunctionPackets {
    /// Packets by the number that the function gave them: flow, content, and whether the packet has come out before.
    packets: BTreeMap<u32, (Flow, CarriedPacket, bool)>,
    /// Flow numbers.
    flows: BTreeMap<Flow, u32>,
}

enum CarriedPacket {
    Map(Datagram),
    Clone(Vec<u8>),
    Delegate(delegate::part::MessageInFunction),
}

/// Work units that run on the placed host, by their request number.
#[derive(Default)]
pub(super) struct OpenWork(BTreeMap<usize, PlacedWork>);

enum PlacedWork {
    Clone(clone::part::PlacedExecution),
    Delegate(delegate::part::PlacedStep),
}

impl CarriedPacket {
    fn payload(&self) -> &[u8] {
        match self {
            Self::Map(datagram) => &datagram.bytes,
            Self::Clone(bytes) => bytes,
            Self::Delegate(carried) => &carried.message,
        }
    }

    /// Flow of the packet; each ability has a network of its own.
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

impl OpenWork {
    /// Number of requests whose work has not ended.
    pub(super) fn open(&self) -> usize {
        self.0.len()
    }
}

impl CombinedWorld<'_> {
    /// Delivers what each part has produced for another part.
    pub(super) fn exchange(&mut self) -> Result<(), CombinedViolation> {
        let mut carried: Vec<CarriedPacket> = Vec::new();
        carried.extend(self.map.iter_mut().flat_map(|part| part.carried.drain(..)).map(CarriedPacket::Map));
        carried.extend(self.clone.iter_mut().flat_map(|part| part.carried.drain(..)).map(CarriedPacket::Clone));
        carried.extend(self.delegate.iter_mut().flat_map(|part| part.carried.drain(..)).map(CarriedPacket::Delegate));
        carried.into_iter().try_for_each(|item| self.carry(item))?;
        self.deliver_packets()?;
        let mut begun: Vec<PlacedWork> = Vec::new();
        begun.extend(self.clone.iter_mut().flat_map(|part| part.placed.drain(..)).map(PlacedWork::Clone));
        begun.extend(self.delegate.iter_mut().flat_map(|part| part.placed.drain(..)).map(PlacedWork::Delegate));
        begun.into_iter().try_for_each(|work| self.place(work))?;
        self.work_ends()
    }

    /// Sends a packet into the function.
    fn carry(&mut self, item: CarriedPacket) -> Result<(), CombinedViolation> {
        let Some(function) = &mut self.function else { return Ok(()) };
        self.counts.carried += 1;
        let (flow, next) = (item.flow(), self.held.flows.len() as u32);
        let number = *self.held.flows.entry(flow).or_insert(next);
        let packet = wrap(flow, self.counts.carried as u16, item.payload());
        let sequence = function.carry(self.time.now, number, &packet)?;
        self.held.packets.insert(sequence, (flow, item, false));
        Ok(())
    }

    /// Delivers the packets that have left the function, and checks that they are unchanged.
    fn deliver_packets(&mut self) -> Result<(), CombinedViolation> {
        let passed = self.function.as_mut().map(|function| std::mem::take(&mut function.passed)).unwrap_or_default();
        for packet in passed {
            let sequence = packet.sequence;
            let Some((flow, item, again)) = self.held.packets.get_mut(&sequence) else {
                return Err(CombinedViolation::Unsent(sequence));
            };
            if unwrap(&packet.payload) != Some((*flow, item.payload())) {
                return Err(CombinedViolation::Changed(sequence));
            }
            let again = std::mem::replace(again, true);
            self.counts.again += u64::from(again);
            match item {
                CarriedPacket::Map(datagram) => {
                    let Some(map) = &mut self.map else { continue };
                    if again {
                        map.repeated();
                    }
                    map.deliver_passed(self.time.now, datagram.clone())?;
                }
                CarriedPacket::Clone(bytes) => {
                    self.clone.as_mut().map_or(Ok(()), |clone| clone.deliver_passed(self.time.now, bytes.clone()))?;
                }
                CarriedPacket::Delegate(carried) => {
                    self.delegate
                        .as_mut()
                        .map_or(Ok(()), |delegate| delegate.deliver_passed(self.time.now, carried))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the function: the packets that are still inside are lost.
    pub(super) fn end_function(&mut self) -> Result<(), CombinedViolation> {
        let packets = std::mem::take(&mut self.held.packets);
        let lost = || packets.values().filter(|(_, _, out)| !out);
        let of_map = lost().filter(|(_, item, _)| matches!(item, CarriedPacket::Map(_))).count() as u64;
        let all = lost().count() as u64;
        self.counts.held_back += all;
        if let Some(map) = &mut self.map {
            map.held_back(self.time.now, of_map);
        }
        let overflowed = self.function.as_ref().is_some_and(|function| function.overflowed > 0);
        let faulty = overflowed || self.setup.function.as_ref().is_none_or(crate::function::FunctionPlan::faulty);
        if all > 0 && !faulty { Err(CombinedViolation::HeldBack(all)) } else { Ok(()) }
    }

    /// Runs work on the host with the path selector, as long as the plan of that host has requests.
    fn place(&mut self, work: PlacedWork) -> Result<(), CombinedViolation> {
        let asked = self.place.as_mut().map_or(Ok(None), |place| place.ask(self.time.now))?;
        match asked {
            Some(request) => {
                self.counts.placed += 1;
                self.work.0.insert(request, work);
                Ok(())
            }
            None => {
                self.ends(work, None);
                Ok(())
            }
        }
    }

    /// Ends the work units whose requests are finished.
    fn work_ends(&mut self) -> Result<(), CombinedViolation> {
        let done = self.place.as_mut().map(|place| std::mem::take(&mut place.done)).unwrap_or_default();
        for (request, answered) in done {
            let work = self.work.0.remove(&request).ok_or(CombinedViolation::Nobody(request))?;
            self.counts.abandoned += u64::from(!answered);
            self.ends(work, Some(answered));
        }
        Ok(())
    }

    /// Ends one work unit. `done` is `None` if no selector ran it: then its own host runs it, in its own time.
    fn ends(&mut self, work: PlacedWork, done: Option<bool>) {
        let now = self.time.now;
        match work {
            PlacedWork::Clone(mut begun) => {
                let Some(clone) = &mut self.clone else { return };
                let alone = clone.service(&begun);
                begun.undone = done == Some(false);
                clone.done_at(begun, now + if done.is_none() { alone } else { Duration::ZERO });
            }
            PlacedWork::Delegate(begun) => {
                let Some(delegate) = &mut self.delegate else { return };
                // The host itself does the work that the selector did not do.
                let alone = if done == Some(true) { Duration::ZERO } else { begun.pause };
                delegate.steps_at(begun, now + alone);
            }
        }
    }
}
