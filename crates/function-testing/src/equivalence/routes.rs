//! Routes of fib.p4c and their changes: nested prefixes of several tenants.

use pathcall_p4::exec::Execution;
use pathcall_p4::ir::{ActionId, Match, Program, TableEntry, TableId};

/// Change of the routes.
#[derive(Debug, Clone)]
pub enum RouteChange {
    /// Adds or replaces a route.
    Put(TableEntry),
    /// Withdraws a route.
    Withdraw(Vec<Match>),
}

/// Next hops per group.
const HOPS: u128 = 3;
/// Groups of next hops.
const GROUPS: u128 = 6;

fn table(program: &Program, name: &str) -> TableId {
    let found = program.tables.iter().position(|table| table.name.ends_with(name));
    TableId(found.unwrap_or_else(|| panic!("no table {name}")) as u32)
}

fn action(program: &Program, name: &str) -> ActionId {
    let found = program.actions.iter().position(|action| action.name.ends_with(name));
    ActionId(found.unwrap_or_else(|| panic!("no action {name}")) as u32)
}

/// Mirrored table of the routes.
pub fn routes_table(program: &Program) -> TableId {
    table(program, "routes")
}

fn keys(tenant: u128, address: u32, prefix_bits: u16) -> Vec<Match> {
    vec![Match { value: tenant, prefix_bits: 16 }, Match { value: address.into(), prefix_bits }]
}

fn route(program: &Program, tenant: u128, address: u32, prefix_bits: u16, group: u128) -> TableEntry {
    TableEntry { keys: keys(tenant, address, prefix_bits), action: action(program, "to_group"), args: vec![group] }
}

/// Initial routes. The last tenant has a single one.
pub fn initial_routes(program: &Program) -> Vec<TableEntry> {
    let mut routes = vec![route(program, 3, 0x0a00_0000, 24, 5)];
    for tenant in 0..3 {
        routes.push(route(program, tenant, 0, 0, tenant));
        routes.push(route(program, tenant, 0x0a00_0000, 22, 1 + tenant));
        routes.push(route(program, tenant, 0x0a00_0080, 25, 3));
        routes.push(route(program, tenant, 0xc633_6400, 24, 4));
    }
    routes
}

/// Change with this number.
pub fn route_change(program: &Program, number: u32) -> RouteChange {
    let put = |address, bits, group| RouteChange::Put(route(program, 1, address, bits, group));
    match number % 6 {
        0 => put(0x0a00_0100, 24, 5),
        1 => put(0x0a00_0180, 26, 0),
        2 => put(0x0a00_0100, 24, 4),
        3 => RouteChange::Withdraw(keys(1, 0x0a00_0080, 25)),
        4 => put(0xc633_6404, 32, 2),
        _ => RouteChange::Withdraw(keys(1, 0x0a00_0100, 24)),
    }
}

/// Installs groups and next hops, which only the element has.
pub fn install_next_hops(program: &Program, element: &mut dyn Execution) {
    let (groups, hops) = (table(program, "groups"), table(program, "hops"));
    let exact = |value| vec![Match { value, prefix_bits: 16 }];
    // The last group is empty.
    for group in 0..GROUPS - 1 {
        let entry =
            TableEntry { keys: exact(group), action: action(program, "spread"), args: vec![group * HOPS, HOPS] };
        element.insert(groups, &entry).expect("room for groups");
    }
    for hop in 0..GROUPS * HOPS {
        let args = vec![2 + hop, 0x0200_0000_1000 + hop, 0x0200_0000_2000 + hop];
        let entry = TableEntry { keys: exact(hop), action: action(program, "via"), args };
        element.insert(hops, &entry).expect("room for next hops");
    }
}
