//! Command `pathcall status`: status of a controller, as tables or as JSON.

mod pools;
mod shares;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use pathcall_auth::{ExpectedPeer, PartyRole};
use pathcall_control::LISTEN_DEFAULT;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{ApplicationStatus, ElementStatus, StatusReply, StatusRequest};
use serde_json::{Value, json};
use tonic::Request;

use crate::failure::Failure;
use crate::memory::{self, RegisterMemory};
use crate::security::{TlsArgs, connect};
use pathcall_console::TextTable;
use pathcall_console::print;

/// Longest wait for the answer, in which the controller also asks its elements.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Controller to ask
    #[arg(long, value_name = "URL", default_value_t = format!("http://{LISTEN_DEFAULT}"))]
    controller: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: StatusArgs) -> Result<(), Failure> {
    let status = fetch_status(&args.controller, &args.tls).await?;
    Ok(print(&if args.json { format!("{:#}\n", json(&status)) } else { text(&status) })?)
}

/// Status of the controller at `url`.
pub(crate) async fn fetch_status(url: &str, tls: &TlsArgs) -> Result<StatusReply, Failure> {
    let target = tls.read()?.target(url, ExpectedPeer::new(PartyRole::Controller))?;
    let mut client = ControllerClient::new(connect(&target).await?);
    let failed = |reason: &str| Failure::Call { url: url.to_owned(), reason: reason.to_owned() };
    match tokio::time::timeout(ANSWER_MAX, client.status(Request::new(StatusRequest {}))).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(failed(status.message())),
        Err(_) => Err(failed(&format!("no answer within {} s", ANSWER_MAX.as_secs()))),
    }
}

fn text(status: &StatusReply) -> String {
    // Writing to a String can't fail.
    let mut text = String::new();
    if status.applications.is_empty() {
        text.push_str("no applications\n");
    } else {
        let _ = write!(text, "{}\n{}", memory_table(status), traffic_table(status));
    }
    if let Some(shares) = shares::table(status) {
        let _ = write!(text, "\n{shares}");
    }
    text.push('\n');
    if status.elements.is_empty() {
        text.push_str("no elements\n");
    } else {
        let _ = write!(text, "{}\n{}", element_table(status), drop_table(status));
    }
    if !status.pools.is_empty() {
        let _ = write!(text, "\n{}\n{}", pools::table(status), pools::servers(status));
        if let Some(racks) = pools::racks(status) {
            let _ = write!(text, "\n{racks}");
        }
    }
    if !status.nodes.is_empty() {
        let mut table = TextTable::new(["node", "reached at"]);
        status.nodes.iter().for_each(|node| table.row([node.name.clone(), node.address.clone()]));
        let _ = write!(text, "\n{table}");
    }
    text
}

/// Table of applications: owner, members, and register memory in an element.
fn memory_table(status: &StatusReply) -> TextTable<12> {
    let mut table = TextTable::new([
        "application",
        "gaid",
        "epoch",
        "owner",
        "callers",
        "in shared memory",
        "element",
        "rows",
        "banks",
        "slots",
        "memory",
        "share",
    ]);
    for application in &status.applications {
        let [element, rows, banks, slots, bytes, share] = match RegisterMemory::of(application, status) {
            Some(memory) => [
                memory.element.to_string(),
                memory.rows.to_string(),
                format!("{} of {} lanes", memory.banks, memory.width / memory.banks),
                memory.slots.to_string(),
                memory::bytes(memory.bytes),
                memory.share(),
            ],
            None => {
                let reason = application.no_memory_reason().text();
                let none = reason.map_or("none".to_owned(), |reason| format!("none ({reason})"));
                [none, "-".into(), "-".into(), "-".into(), "-".into(), "-".into()]
            }
        };
        table.row([
            application.name.clone(),
            application.gaid.to_string(),
            application.epoch.to_string(),
            alive(&application.service_address, application.alive),
            callers(application).to_string(),
            sharing(application, status),
            element,
            rows,
            banks,
            slots,
            bytes,
            share,
        ]);
    }
    table
}

/// Number of callers: all endpoints but the owner's, which has no flow slots and exists as long as the owner.
fn callers(application: &ApplicationStatus) -> usize {
    application.endpoints.len().saturating_sub(usize::from(application.alive))
}

/// Number of an application's endpoints, including its owner, that exchange frames with the element through shared
/// memory. The others use UDP.
fn sharing(application: &ApplicationStatus, status: &StatusReply) -> String {
    let endpoints = &application.endpoints;
    let sharing = endpoints.iter().filter(|endpoint| shares_memory(endpoint.endpoint, status)).count();
    format!("{sharing} of {}", endpoints.len())
}

fn shares_memory(endpoint: u32, status: &StatusReply) -> bool {
    let counters = status.elements.iter().filter_map(|element| element.counters.as_ref());
    counters.flat_map(|reply| &reply.shared_memory).any(|sharing| *sharing == endpoint)
}

/// Table of traffic: frames of each application that the element processed or left to the server.
fn traffic_table(status: &StatusReply) -> TextTable<8> {
    let counters = ApplicationCounters::of(status);
    let mut table = TextTable::new([
        "application",
        "frames admitted",
        "done in the element",
        "lanes added",
        "repeats",
        "left to the server",
        "stale or refused",
        "not admitted",
    ]);
    for application in &status.applications {
        let count = |names: &[&'static str]| {
            let counts: Option<Vec<u64>> = names.iter().map(|name| counters.get(application.gaid, name)).collect();
            counts.map_or("-".to_owned(), |counts| counts.iter().sum::<u64>().to_string())
        };
        table.row([
            application.name.clone(),
            count(&["admitted"]),
            count(&["applied"]),
            count(&["lanes_added"]),
            count(&["repeats"]),
            count(&["diverted", "old", "cross"]),
            count(&["stale", "refused"]),
            count(&["not_admitted"]),
        ]);
    }
    table
}

fn element_table(status: &StatusReply) -> TextTable<8> {
    let mut table =
        TextTable::new(["element", "frames at", "serves", "rows used", "lanes used", "slots used", "in", "out"]);
    for element in &status.elements {
        let count = |name: &str| counter(element, name).map_or("-".to_owned(), |n| n.to_string());
        table.row([
            element.element.to_string(),
            alive(&in_rack(&element.data_address, &element.rack), element.alive),
            served(element),
            used(element.rows_used, element.rows),
            used(element.lanes_used, element.lanes),
            used(element.slots_used, element.slots),
            count("frames_in"),
            count("frames_out"),
        ]);
    }
    table
}

/// What an element serves by its profile.
fn served(element: &ElementStatus) -> String {
    let rows = match element.frame_lanes {
        0 => "map".to_owned(),
        lanes => format!("map ({lanes} lanes)"),
    };
    let map = (!element.without_map).then_some(rows);
    let served: Vec<_> = map.into_iter().chain((!element.without_pools).then(|| "pools".to_owned())).collect();
    if served.is_empty() { "nothing".to_owned() } else { served.join(", ") }
}

/// Table of dropped frames by reason, including reasons with count zero.
fn drop_table(status: &StatusReply) -> TextTable<3> {
    let mut table = TextTable::new(["element", "dropped", "frames"]);
    for element in &status.elements {
        let drops = drops(element);
        if drops.is_empty() {
            table.row([element.element.to_string(), "no answer".to_owned(), "-".to_owned()]);
        }
        for (reason, count) in drops {
            table.row([element.element.to_string(), reason.replace('_', " "), count.to_string()]);
        }
    }
    table
}

/// Counters of frames that end in the element because their work is done: the slower answer of a cloned call, or a
/// count that waits for more. These frames are not lost.
const DONE: [&str; 2] = ["drop_filtered", "drop_counted"];

/// Dropped frames of the program by reason, and frames lost by the link; empty when the element did not answer.
fn drops(element: &ElementStatus) -> BTreeMap<&str, u64> {
    counters_where(element, |name| {
        (name.starts_with("drop_") || name.starts_with("link_lost_")) && !DONE.contains(&name)
    })
}

/// Frames whose work ended in the element.
fn done(element: &ElementStatus) -> BTreeMap<&str, u64> {
    counters_where(element, |name| DONE.contains(&name))
}

fn counters_where(element: &ElementStatus, which: impl Fn(&str) -> bool) -> BTreeMap<&str, u64> {
    let counters = element.counters.iter().flat_map(|reply| &reply.element).filter(|(name, _)| which(name));
    counters.map(|(name, count)| (name.strip_prefix("drop_").unwrap_or(name), *count)).collect()
}

/// Counters of applications, summed over the elements that answered.
struct ApplicationCounters<'a>(HashMap<(u32, &'a str), u64>);

impl<'a> ApplicationCounters<'a> {
    fn of(status: &'a StatusReply) -> Self {
        let mut sums = HashMap::new();
        for reply in status.elements.iter().filter_map(|element| element.counters.as_ref()) {
            for (gaid, application) in &reply.applications {
                for (name, count) in &application.counters {
                    *sums.entry((*gaid, name.as_str())).or_default() += count;
                }
            }
        }
        Self(sums)
    }

    /// Count of an application; `None` when no element knows it.
    fn get(&self, gaid: u32, name: &'a str) -> Option<u64> {
        self.0.get(&(gaid, name)).copied()
    }
}

/// Counter of an element; `None` when it did not answer.
fn counter(element: &ElementStatus, name: &str) -> Option<u64> {
    element.counters.as_ref()?.element.get(name).copied()
}

fn alive(address: &str, alive: bool) -> String {
    let address = if address.is_empty() { "-" } else { address };
    if alive { address.to_owned() } else { format!("{address} (gone)") }
}

/// Address, with its rack if one is named.
fn in_rack(address: &str, rack: &str) -> String {
    if rack.is_empty() { address.to_owned() } else { format!("{address} in rack {rack}") }
}

fn used(used: u32, of: u32) -> String {
    format!("{used}/{of}")
}

/// Status as JSON, with the names of `control.proto`.
fn json(status: &StatusReply) -> Value {
    json!({
        "applications": status.applications.iter().map(|application| application_json(application, status)).collect::<Vec<_>>(),
        "elements": status.elements.iter().map(element_json).collect::<Vec<_>>(),
        "pools": status.pools.iter().map(pools::json).collect::<Vec<_>>(),
        "nodes": status.nodes.iter().map(|node| json!({ "name": node.name, "address": node.address })).collect::<Vec<_>>(),
    })
}

fn application_json(application: &ApplicationStatus, status: &StatusReply) -> Value {
    let memory = application.memory.as_ref().map(|memory| {
        json!({
            "element": memory.element,
            "data_address": memory.data_address,
            "row_base": memory.row_base,
            "rows": memory.rows,
            "lane_base": memory.lane_base,
            "width": memory.width,
        })
    });
    let endpoints = application.endpoints.iter().map(|endpoint| {
        json!({
            "endpoint": endpoint.endpoint,
            "incarnation": endpoint.incarnation,
            "data_address": endpoint.data_address,
            "slot_base": endpoint.slot_base,
            "slots": endpoint.slots,
            "road": if shares_memory(endpoint.endpoint, status) { "shared memory" } else { "udp" },
        })
    });
    json!({
        "name": application.name,
        "gaid": application.gaid,
        "epoch": application.epoch,
        "alive": application.alive,
        "service_address": application.service_address,
        "authenticated": application.authenticated,
        "no_memory_reason": application.no_memory_reason().text(),
        "memory": memory,
        "usage": RegisterMemory::of(application, status).map(|memory| memory.json()),
        "claim": shares::json(application),
        "callers": callers(application),
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

fn element_json(element: &ElementStatus) -> Value {
    let counters = element.counters.as_ref().map(|reply| {
        let applications = reply.applications.iter().map(|(gaid, counts)| (gaid.to_string(), json!(counts.counters)));
        json!({
            "element": reply.element,
            "applications": applications.collect::<serde_json::Map<_, _>>(),
        })
    });
    json!({
        "element": element.element,
        "rack": element.rack,
        "serves": served(element),
        "frame_lanes": element.frame_lanes,
        "alive": element.alive,
        "data_address": element.data_address,
        "control_address": element.control_address,
        "rows": element.rows,
        "rows_used": element.rows_used,
        "lanes": element.lanes,
        "lanes_used": element.lanes_used,
        "slots": element.slots,
        "slots_used": element.slots_used,
        "counters": counters,
        "dropped": drops(element),
        "done": done(element),
    })
}
