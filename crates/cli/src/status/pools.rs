//! Tables of pools, whose servers answer the same cloned calls.

use pathcall_proto::v1::{PoolStatus, StatusReply};
use serde_json::{Value, json};

use super::ApplicationCounters;
use pathcall_console::TextTable;

/// Members of each pool, and the counters of its calls in its element.
pub(super) fn table(status: &StatusReply) -> TextTable<11> {
    let counters = ApplicationCounters::of(status);
    let mut table = TextTable::new([
        "pool", "gaid", "version", "servers", "callers", "element", "tokens", "requests", "cloned", "answers",
        "filtered",
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
            if pool.element == 0 { "none".to_owned() } else { pool.element.to_string() },
            if pool.authenticated { "yes" } else { "no" }.to_owned(),
            count("requests"),
            count("clones"),
            count("replies"),
            count("filtered"),
        ]);
    }
    table
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
                server.data_address.clone(),
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
        })
    });
    json!({
        "name": pool.name,
        "gaid": table.map(|table| table.gaid),
        "version": table.map(|table| table.version),
        "element": (pool.element != 0).then_some(pool.element),
        "authenticated": pool.authenticated,
        "callers": pool.callers,
        "servers": servers.collect::<Vec<_>>(),
    })
}
