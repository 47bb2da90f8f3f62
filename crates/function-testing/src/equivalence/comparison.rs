//! Comparison of the split system's output with the expected output, and of the counters.

use std::collections::BTreeMap;

use super::OutputItem;
use super::plan_run::PlanRun;
use pathcall_netfn::place::ServerId;
use pathcall_p4::exec::{DropReason, Execution};
use pathcall_p4::ir::CounterId;
use pathcall_p4::split::ElementEvent;

/// Expected output.
pub struct ExpectedOutput {
    /// Alternatives: two while routes are changing.
    pub either: Vec<OutputItem>,
    /// True if the output may be missing, because its server died or one of the routes has no next hop.
    pub optional: bool,
    /// Server that handled the packet.
    pub server: Option<ServerId>,
}

impl<E: Execution> PlanRun<'_, E> {
    pub fn compare_outputs(&mut self) -> Result<(), String> {
        let mut flows: BTreeMap<Vec<u8>, Vec<OutputItem>> = BTreeMap::new();
        for (flow, item) in std::mem::take(&mut self.left) {
            self.played.left += 1;
            flows.entry(flow).or_default().push(item);
        }
        for (flow, expected) in &self.expected {
            let got = flows.remove(flow).unwrap_or_default();
            if self.unsure.contains(flow) && matches!(expected[0].either[0], OutputItem::Digest(..)) {
                continue;
            }
            check_order(expected, &got).map_err(|wrong| format!("flow {flow:x?}: {wrong}"))?;
        }
        let unasked = |flow: &Vec<u8>, items: &Vec<OutputItem>| {
            !(self.unsure.contains(flow) && matches!(items[0], OutputItem::Digest(..)))
        };
        match flows.into_iter().find(|(flow, items)| unasked(flow, items)) {
            Some((flow, items)) => Err(format!("flow {flow:x?}: {items:x?} should not have left")),
            None => Ok(()),
        }
    }

    /// Compares the counters; without losses they must be equal.
    pub fn compare_counters(&mut self) -> Result<(), String> {
        if self.dead.is_some() {
            self.played.lost += self.expected.values().flatten().filter(|expected| expected.optional).count() as u64;
        }
        let event = |event| self.system.events(event);
        let failed = self.dead.is_some() || self.restarted;
        if event(ElementEvent::Stray) != 0 || (event(ElementEvent::NoServer) != 0 && !failed) {
            return Err(format!(
                "{} strays, {} without a server",
                event(ElementEvent::Stray),
                event(ElementEvent::NoServer)
            ));
        }
        let trapped: u64 = self.system.servers().map(|server| server.stats().trapped).sum();
        if trapped != 0 {
            return Err(format!("{trapped} packets were lost in handlers"));
        }
        if failed || self.plan.faults.routes {
            return Ok(());
        }
        let whole = self.wholes[0].oracle.execution_mut();
        let parts = self.system.execution();
        for (id, counter) in self.function.program.counters.iter().enumerate() {
            for index in 0..counter.size {
                let of = |execution: &dyn Execution| execution.counter(CounterId(id as u32), index);
                let (got, expected) = (of(parts), of(whole));
                if got.packets != expected.packets {
                    return Err(format!("{}[{index}]: {got:?}, expected {expected:?}", counter.name));
                }
            }
        }
        for reason in DropReason::ALL {
            let (got, mut expected) = (parts.dropped(reason), whole.dropped(reason));
            match reason {
                // The element drops packets that the handler ended.
                DropReason::Program => expected += whole.dropped(DropReason::Handler),
                DropReason::Handler => expected = 0,
                _ => {}
            }
            if got != expected {
                return Err(format!("{got} packets {reason}, expected {expected}"));
            }
        }
        Ok(())
    }
}

/// Checks that the expected outputs left, in this order.
fn check_order(expected: &[ExpectedOutput], got: &[OutputItem]) -> Result<(), String> {
    let mut rest = expected.iter();
    for (at, item) in got.iter().enumerate() {
        loop {
            match rest.next() {
                Some(expected) if expected.either.contains(item) => break,
                Some(expected) if expected.optional => {}
                Some(expected) => {
                    return Err(format!(
                        "packet {at} of {}:\nexpected {:?}\ngot      {item:?}",
                        got.len(),
                        expected.either
                    ));
                }
                None => return Err(format!("packet {at} of {} should not have left: {item:?}", got.len())),
            }
        }
    }
    match rest.find(|expected| !expected.optional) {
        Some(expected) => Err(format!("only {} left, not {:?}", got.len(), expected.either)),
        None => Ok(()),
    }
}
