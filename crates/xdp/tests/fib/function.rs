//! Function under test: `fib.p4c` with an element and two servers in this process.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use pathcall_netfn::handler::{self, CHandler};
use pathcall_netfn::place;
use pathcall_netfn::run::{Config, System};
use pathcall_p4::exec::{DropReason, Execution, Output};
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, Match, Program, TableEntry, TableId};
use pathcall_p4::split::balance::Sizes;
use pathcall_p4::split::{ElementEvent, SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};

use super::routes::{Hops, Prefix};

const SERVERS: usize = 2;
/// Capacity of the element, routes.
const ELEMENT_ENTRIES: u32 = 1024;
/// Time between two packets, µs.
const GAP_US: u64 = 2;
/// Group without next hops, for routes that lead nowhere.
const NOWHERE: u128 = 0xffff;
/// Offset of a packet's number: after Ethernet, IPv4 and UDP headers.
const NUMBER: usize = 42;
/// MAC address of the next hops, without the port in its low bits.
const HOP_MAC: u128 = 0x0200_0000_0000;

pub struct Function {
    system: System<CHandler, Interpreter>,
    program: Program,
    groups: Vec<Vec<u16>>,
    now_us: u64,
    packets: u64,
}

impl Function {
    /// Function with these groups of next hops.
    pub fn new(groups: &[Vec<u16>]) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/fib.p4c");
        let mut sources = Sources::default();
        let program = compile(&mut sources, file.as_path());
        let program = program.unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
        let sizes = Sizes { entries: ELEMENT_ENTRIES, ..Sizes::default() };
        let split = split(&program, &SplitTarget { function: 1, sizes, phv_bits: None }).expect("it can be split");
        let element = Interpreter::new(&split.element).expect("it runs");
        // A machine that stands still counts this time as the handler's.
        let settings = handler::Config { limit: Duration::from_secs(60), ..handler::Config::default() };
        let first = CHandler::start(&program, &|_| None, &settings, &handler::cache_dir(), 0).expect("a handler");
        let mut servers: Vec<_> =
            (1..SERVERS).map(|_| first.new_instance(&program, &settings, 0).expect("one more")).collect();
        servers.push(first);
        let config = Config { place: place::Config::default(), control_us: 50, ..Config::default() };
        let system = System::new(split, element, servers, SERVERS, &config, |_| 5);
        let mut function = Self { system, program, groups: groups.to_vec(), now_us: 1_000_000, packets: 0 };
        function.system.advance(function.now_us, &mut |_| {});
        function.next_hops();
        function
    }

    /// Inserts the groups: each is a range of indices of next hops.
    fn next_hops(&mut self) {
        let exact = |value, prefix_bits| Match { value, prefix_bits };
        let mut first = 0;
        for (group, hops) in self.groups.clone().iter().enumerate() {
            let keys = vec![exact(group as u128, 16)];
            self.insert("groups", "spread", keys, vec![first, hops.len() as u128]);
            for (at, hop) in hops.iter().enumerate() {
                let args = vec![u128::from(*hop), HOP_MAC | u128::from(*hop), HOP_MAC | 0xffff];
                self.insert("hops", "via", vec![exact(first + at as u128, 16)], args);
            }
            first += hops.len() as u128;
        }
    }

    fn insert(&mut self, table: &str, action: &str, keys: Vec<Match>, args: Vec<u128>) {
        let (table, action) = (self.table(table), self.action(action));
        let inserted = self.system.execution_mut().insert(table, &TableEntry { keys, action, args });
        inserted.expect("there is room");
    }

    fn table(&self, name: &str) -> TableId {
        let found = self.program.tables.iter().position(|table| is(&table.name, name));
        TableId(found.expect("a table") as u32)
    }

    fn action(&self, name: &str) -> ActionId {
        let found = self.program.actions.iter().position(|action| is(&action.name, name));
        ActionId(found.expect("an action") as u32)
    }

    /// Adds or changes a route.
    pub fn add(&mut self, prefix: Prefix, hops: &Hops) {
        let group = match hops {
            Hops::Group(group) => *group as u128,
            Hops::None(_) => NOWHERE,
        };
        let (table, action) = (self.table("routes"), self.action("to_group"));
        self.system.add(table, &TableEntry { keys: keys(prefix), action, args: vec![group] });
    }

    pub fn remove(&mut self, prefix: Prefix) {
        let table = self.table("routes");
        self.system.remove(table, &keys(prefix));
    }

    /// Next hop by which a packet to each address left.
    pub fn forward(&mut self, addresses: &[Ipv4Addr]) -> Vec<Option<u16>> {
        self.send(addresses.iter().enumerate().map(|(at, address)| (*address, at as u16)))
    }

    /// Next hops of several flows to one address.
    pub fn flows(&mut self, address: Ipv4Addr, flows: u16) -> Vec<Option<u16>> {
        self.send((0..flows).map(|flow| (address, flow.wrapping_mul(7919))))
    }

    fn send(&mut self, packets: impl Iterator<Item = (Ipv4Addr, u16)>) -> Vec<Option<u16>> {
        let (mut left, mut dropped, mut count) = (BTreeMap::new(), 0, 0);
        let mut take = |output: Output<'_>| match output {
            Output::Packet { port, bytes } => {
                let mac = bytes[..6].iter().fold(0, |mac, byte| mac << 8 | u128::from(*byte));
                assert_eq!(mac, HOP_MAC | u128::from(port), "address and port of different next hops");
                let number = u32::from_be_bytes(bytes[NUMBER..NUMBER + 4].try_into().expect("4 bytes"));
                assert_eq!(left.insert(number, port), None, "a packet left twice");
            }
            Output::Dropped(DropReason::Program) => dropped += 1,
            other => panic!("{other:?}"),
        };
        for (address, port) in packets {
            self.now_us += GAP_US;
            self.system.process(self.now_us, 0, &packet(address, port, count), &mut take);
            count += 1;
        }
        self.system.finish(&mut take);
        self.packets += u64::from(count);
        assert_eq!(left.len() as u32 + dropped, count, "each packet leaves or is dropped");
        (0..count).map(|number| left.get(&number).copied()).collect()
    }

    /// Number of packets that needed no server.
    pub fn without_server(&self) -> u64 {
        self.packets - self.system.events(ElementEvent::Request)
    }
}

fn is(path: &str, name: &str) -> bool {
    path.rsplit('.').next() == Some(name)
}

/// Keys of a prefix, for the tenant without a VLAN tag.
fn keys((address, bits): Prefix) -> Vec<Match> {
    vec![Match { value: 0, prefix_bits: 16 }, Match { value: address.into(), prefix_bits: bits.into() }]
}

fn packet(to: Ipv4Addr, port: u16, number: u32) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 200, 0, 1]);
    packet.extend(to.octets());
    packet.extend(port.to_be_bytes());
    packet.extend([0, 53, 0, 12, 0, 0]);
    packet.extend(number.to_be_bytes());
    packet
}
