//! Table entries of a pipeline, derived from the installed applications, endpoints, groups and pools.
//!
//! ```text
//! applications, endpoints, groups, pools ─► wanted ─┐
//!                                 present entries ──┴─► sync: insert, modify, remove
//! ```

use std::collections::BTreeMap;

use pathcall_p4::exec::{Execution, TableError};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, Match, Program, TableEntry, TableId};
use pathcall_program::AdmissionTables;
use pathcall_program::pipeline::PipelineProfile;
use pathcall_wire::clone::{groups, pair};

use super::names::{NameError, action, table};
use super::packet::{ELEMENT, address, station};

/// Table of the program, with the single action of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PipelineTable {
    Applications,
    Pools,
    Senders,
    Addressees,
    Own,
    Groups,
    Servers,
    Members,
    Whereabouts,
}

/// Names of tables and actions in the P4 text, in the order of [`PipelineTable`].
const TABLES: [(&str, &str); 9] = [
    ("tables.applications", "application"),
    ("tables.pools", "pool"),
    ("tables.senders", "sender"),
    ("tables.addressees", "addressee"),
    ("check.own", "NoAction"),
    ("group.groups", "pair"),
    ("address.servers", "server"),
    ("members", "member"),
    ("whereabouts", "at"),
];

/// Tables that only a profile with map has, and tables that only a profile with calls has.
const OF_MAP: [&str; 1] = ["tables.applications"];
const OF_CALLS: [&str; 3] = ["tables.pools", "group.groups", "address.servers"];

/// Replica id of a multicast copy that makes a second pass (`RID_SECOND_PASS`).
const SECOND_PASS: u16 = 0xffff;
/// Base of the multicast groups for cloned requests, one per port (`GROUP_TWICE`).
const TWICE: u16 = 0x8000;
/// Number of ports with endpoints.
const PORTS: u16 = 250;

/// Indices of counters, groups and loads, by application or pool id.
pub(super) type Indices = BTreeMap<u32, u32>;
type Wanted = BTreeMap<(PipelineTable, Vec<u128>), Vec<u128>>;

/// Tables with their current entries.
#[derive(Debug)]
pub(super) struct PipelineTables {
    /// Ids in the order of [`PipelineTable`]: table, action, and the width of each key in bits; `None` for a table that
    /// the profile leaves out.
    ids: Vec<Option<(TableId, ActionId, Vec<u16>)>>,
    present: Wanted,
    /// True for inline mode: frames addressed to endpoints are processed on the path.
    inlined: bool,
}

/// Port of an endpoint.
pub(super) fn port(endpoint: u32) -> u16 {
    (endpoint % u32::from(PORTS)) as u16
}

impl PipelineTables {
    pub(super) fn new(
        program: &Program,
        machine: &mut Interpreter,
        inlined: bool,
        profile: PipelineProfile,
    ) -> Result<Self, NameError> {
        let id = |(name, of): &(&str, &str)| {
            if !profile.has_map() && OF_MAP.contains(name) || !profile.has_calls() && OF_CALLS.contains(name) {
                return Ok(None);
            }
            let id = table(program, name)?;
            let widths = program.tables[id.0 as usize].keys.iter().map(|key| key.expr.ty.width()).collect();
            Ok(Some((id, action(program, id, of)?, widths)))
        };
        for port in 0..PORTS {
            machine.set_group(TWICE | port, &[(port, 0), (port, SECOND_PASS)]);
        }
        Ok(Self { ids: TABLES.iter().map(id).collect::<Result<_, _>>()?, present: Wanted::new(), inlined })
    }

    /// Updates the tables to the entries derived from the installed state.
    pub(super) fn sync(
        &mut self,
        machine: &mut Interpreter,
        installed: &AdmissionTables,
        applications: &Indices,
        pools: &Indices,
    ) -> Result<(), TableError> {
        let wanted = wanted(installed, applications, pools, self.inlined);
        for (at, _) in self.present.iter().filter(|(at, _)| !wanted.contains_key(*at)) {
            if let Some((table, entry)) = self.entry(at, &[]) {
                machine.remove(table, &entry.keys)?;
            }
        }
        for (at, args) in &wanted {
            let Some((table, entry)) = self.entry(at, args) else { continue };
            match self.present.get(at) {
                Some(before) if before == args => {}
                Some(_) => machine.modify(table, &entry)?,
                None => machine.insert(table, &entry)?,
            }
        }
        self.present = wanted;
        for (gaid, index) in applications {
            let members = installed.group(*gaid).zip(1..).map(|(member, rid)| (port(member.endpoint), rid));
            machine.set_group(*index as u16 + 1, &members.collect::<Vec<_>>());
        }
        Ok(())
    }

    /// Entry with its table, if the profile has the table.
    fn entry(&self, (of, keys): &(PipelineTable, Vec<u128>), args: &[u128]) -> Option<(TableId, TableEntry)> {
        let (table, action, widths) = self.ids[*of as usize].as_ref()?;
        let keys = keys.iter().zip(widths).map(|(&value, &prefix_bits)| Match { value, prefix_bits });
        Some((*table, TableEntry { keys: keys.collect(), action: *action, args: args.to_vec() }))
    }
}

fn wanted(installed: &AdmissionTables, applications: &Indices, pools: &Indices, inlined: bool) -> Wanted {
    let mut wanted = Wanted::new();
    let mut want = |of: PipelineTable, keys: &[u32], args: &[u64]| {
        let keys = keys.iter().map(|key| u128::from(*key)).collect();
        wanted.insert((of, keys), args.iter().map(|arg| u128::from(*arg)).collect());
    };
    want(PipelineTable::Own, &[u32::from(*ELEMENT.ip()), ELEMENT.port().into()], &[]);
    for (a, _, _) in installed.applications() {
        let Some(&index) = applications.get(&a.gaid) else { continue };
        let args = [index, a.epoch, a.owner, a.row_base, a.rows, a.width].map(u64::from);
        want(PipelineTable::Applications, &[a.gaid], &args);
        for (member, rid) in installed.group(a.gaid).zip(1..) {
            want(PipelineTable::Members, &[index, rid], &[member.endpoint, member.incarnation].map(u64::from));
        }
    }
    for (pool, _, _) in installed.pools() {
        let Some(&index) = pools.get(&pool.gaid) else { continue };
        let count = pool.servers.len();
        want(PipelineTable::Pools, &[pool.gaid], &[index, pool.version, groups(count)].map(u64::from));
        for (group, (first, second)) in (0..groups(count)).filter_map(|group| Some((group, pair(group, count)?))) {
            want(PipelineTable::Groups, &[pool.gaid, group], &[first, second].map(u64::from));
        }
        for (server, sid) in pool.servers.iter().zip(0..) {
            if let Some(endpoint) = installed.endpoint(*server).filter(|endpoint| endpoint.gaid == pool.gaid) {
                let egress = port(endpoint.endpoint).into();
                let args = [endpoint.endpoint, endpoint.incarnation, egress].map(u64::from);
                want(PipelineTable::Servers, &[pool.gaid, sid], &args);
            }
        }
    }
    for e in installed.endpoints() {
        let place = |servers: &[u32]| servers.iter().position(|server| *server == e.endpoint);
        let pool = installed.pools().find(|(pool, _, _)| pool.gaid == e.gaid);
        let server = pool.and_then(|(pool, _, _)| place(&pool.servers)).map_or(0, |sid| sid as u64 + 1);
        let at = address(e.endpoint);
        let (ip, udp) = (u64::from(u32::from(*at.ip())), u64::from(at.port()));
        let [e_incarnation, e_base, e_slots] = [e.incarnation, e.slot_base, e.slots].map(u64::from);
        let egress = port(e.endpoint).into();
        want(PipelineTable::Senders, &[e.gaid, e.endpoint], &[e_incarnation, e_base, e_slots, server, egress]);
        let met = if inlined { [server, ip, udp, egress] } else { [server, 0, 0, egress] };
        want(PipelineTable::Addressees, &[e.gaid, e.endpoint], &met);
        want(PipelineTable::Whereabouts, &[e.endpoint], &[station(*at.ip()), station(*ELEMENT.ip()), ip, udp]);
    }
    wanted
}
