//! Tables of pools, whose servers answer the same cloned calls.

use pathcall_proto::v1::{PoolRackStatus, PoolStatus, StatusReply};
use serde_json::{Value, json};

use super::{ApplicationCounters, in_rack};
use pathcall_console::TextTable;

/// Members of each pool, and the counters of its calls in its elements.
pub(super) fn table(status: &StatusReply) -> TextTable<12> {
    let counters = ApplicationCounters::of(status);
    let mut table = TextTable::new([
        "pool", "gaid", "version", "servers", "callers", "element", "tokens", "requests", "cloned", "hedged",
        "answers", "filtered",
    ]);
    for pool in &status.pools {
        let (gaid, version, servers) =
            pool.pool.as_ref().map_or((0, 0, 0), |pool| (pool.gaid, pool.version, pool.servers.len()));
        let count = |name| counters.get(gaid, name).map_or("-".to_owned(), |count| count.to_string());
        table.row([
            pool.name.clone(),
            gaid.to_string(),
            version.to_string(),
            servers.to_string(),
            pool.callers.to_string(),
            elements(pool),
            if pool.authenticated { "yes" } else { "no" }.to_owned(),
            count("requests"),
            count("clones"),
            count("hedges_sent"),
            count("replies"),
            count("filtered"),
        ]);
    }
    table
}

/// Elements of a pool.
fn elements(pool: &PoolStatus) -> String {
    let elements = pool.pool.iter().flat_map(|table| &table.elements);
    let elements: Vec<String> = elements.map(|element| element.element.to_string()).collect();
    if elements.is_empty() { "none".to_owned() } else { elements.join(", ") }
}

/// Racks of all pools, if any is named: their members, and the counters of the pool's calls in the element that the
/// rack's callers use.
pub(super) fn racks(status: &StatusReply) -> Option<TextTable<9>> {
    let racks = || status.pools.iter().flat_map(|pool| pool.racks.iter().map(move |rack| (pool, rack)));
    racks().find(|(_, rack)| !rack.rack.is_empty())?;
    let mut table = TextTable::new([
        "pool",
        "rack",
        "servers",
        "callers",
        "element",
        "requests",
        "cloned",
        "filtered",
        "of other racks",
    ]);
    for (pool, of_pool) in racks() {
        let count = |name| counter(status, pool, of_pool, name).map_or("-".to_owned(), |count| count.to_string());
        table.row([
            pool.name.clone(),
            if of_pool.rack.is_empty() { "-".to_owned() } else { of_pool.rack.clone() },
            of_pool.servers.to_string(),
            of_pool.callers.to_string(),
            if of_pool.element == 0 { "none".to_owned() } else { of_pool.element.to_string() },
            count("requests"),
            count("clones"),
            count("filtered"),
            count("passed"),
        ]);
    }
    Some(table)
}

/// Counter of a pool in the element of a rack; `None` without its answer.
fn counter(status: &StatusReply, pool: &PoolStatus, rack: &PoolRackStatus, name: &str) -> Option<u64> {
    let gaid = pool.pool.as_ref()?.gaid;
    let element = status.elements.iter().find(|element| element.element == rack.element)?;
    element.counters.as_ref()?.applications.get(&gaid)?.counters.get(name).copied()
}

/// Servers of all pools, by SID.
pub(super) fn servers(status: &StatusReply) -> TextTable<5> {
    let mut table = TextTable::new(["pool", "sid", "endpoint", "frames at", "calls at"]);
    for pool in &status.pools {
        let servers = pool.pool.iter().flat_map(|table| &table.servers);
        for (sid, server) in servers.enumerate() {
            table.row([
                pool.name.clone(),
                sid.to_string(),
                server.endpoint.to_string(),
                in_rack(&server.data_address, &server.rack),
                if server.service_address.is_empty() { "-".to_owned() } else { server.service_address.clone() },
            ]);
        }
    }
    table
}

pub(super) fn json(pool: &PoolStatus) -> Value {
    let table = pool.pool.as_ref();
    let servers = table.into_iter().flat_map(|table| &table.servers).map(|server| {
        json!({
            "endpoint": server.endpoint,
            "incarnation": server.incarnation,
            "data_address": server.data_address,
            "service_address": server.service_address,
            "rack": server.rack,
        })
    });
    let elements = table.into_iter().flat_map(|table| &table.elements).map(
        |element| json!({ "element": element.element, "rack": element.rack, "data_address": element.data_address }),
    );
    let racks = pool.racks.iter().map(|rack| {
        json!({
            "rack": rack.rack,
            "element": (rack.element != 0).then_some(rack.element),
            "servers": rack.servers,
            "callers": rack.callers,
        })
    });
    json!({
        "name": pool.name,
        "gaid": table.map(|table| table.gaid),
        "version": table.map(|table| table.version),
        "element": (pool.element != 0).then_some(pool.element),
        "authenticated": pool.authenticated,
        "callers": pool.callers,
        "elements": elements.collect::<Vec<_>>(),
        "racks": racks.collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
    })
}
