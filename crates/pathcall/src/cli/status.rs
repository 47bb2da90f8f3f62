//! `pathcall status`: what a controller knows, as tables or as JSON.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use pathcall_control::LISTEN_DEFAULT;
use pathcall_control::client::Controller;
use pathcall_proto::v1::{ApplicationStatus, ElementStatus, StatusReply, StatusRequest};
use serde_json::{Value, json};
use tonic::Request;

use crate::cli::failure::Failure;
use crate::cli::print;
use crate::cli::table::Table;

/// Longest wait for the answer: the controller asks its elements meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Controller to ask
    #[arg(long, value_name = "URL", default_value_t = format!("http://{LISTEN_DEFAULT}"))]
    controller: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: StatusArgs) -> Result<(), Failure> {
    let mut client = Controller::new(&args.controller)?.connect().await?;
    let failed = |reason: &str| Failure::Call { url: args.controller.clone(), reason: reason.to_owned() };
    let answer = tokio::time::timeout(ANSWER_MAX, client.status(Request::new(StatusRequest {}))).await;
    let status = match answer {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => return Err(failed(status.message())),
        Err(_) => return Err(failed(&format!("no answer within {} s", ANSWER_MAX.as_secs()))),
    };
    print(&if args.json { format!("{:#}\n", json(&status)) } else { text(&status) })
}

fn text(status: &StatusReply) -> String {
    let counters = ApplicationCounters::of(status);
    let mut text = String::new();
    if status.applications.is_empty() {
        text.push_str("no applications\n");
    } else {
        let mut table = Table::new([
            "application",
            "gaid",
            "epoch",
            "owner",
            "memory",
            "callers",
            "frames",
            "lanes added",
            "diverted",
        ]);
        for application in &status.applications {
            let count = |name: &str| counters.get(application.gaid, name).map_or("-".to_owned(), |n| n.to_string());
            table.row([
                application.name.clone(),
                application.gaid.to_string(),
                application.epoch.to_string(),
                alive(&application.service_address, application.alive),
                memory(application),
                application.endpoints.len().to_string(),
                count("admitted"),
                count("lanes_added"),
                count("diverted"),
            ]);
        }
        text.push_str(&table.to_string());
    }
    text.push('\n');
    if status.elements.is_empty() {
        text.push_str("no elements\n");
        return text;
    }
    let mut table =
        Table::new(["element", "frames at", "rows used", "lanes used", "slots used", "in", "out", "dropped"]);
    for element in &status.elements {
        let count = |prefix: &str| total(element, prefix).map_or("-".to_owned(), |n| n.to_string());
        table.row([
            element.element.to_string(),
            alive(&element.data_address, element.alive),
            used(element.rows_used, element.rows),
            used(element.lanes_used, element.lanes),
            used(element.slots_used, element.slots),
            count("frames_in"),
            count("frames_out"),
            count("drop_"),
        ]);
    }
    // Writing to a String can't fail.
    let _ = write!(text, "{table}");
    text
}

/// Counters of the applications, summed over the elements that answered.
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

    /// Absent when no element knows the application.
    fn get(&self, gaid: u32, name: &'a str) -> Option<u64> {
        self.0.get(&(gaid, name)).copied()
    }
}

/// Sum of the element's counters whose names begin so; absent when it did not answer.
fn total(element: &ElementStatus, prefix: &str) -> Option<u64> {
    let counters = &element.counters.as_ref()?.element;
    Some(counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum())
}

fn alive(address: &str, alive: bool) -> String {
    let address = if address.is_empty() { "-" } else { address };
    if alive { address.to_owned() } else { format!("{address} (gone)") }
}

fn memory(application: &ApplicationStatus) -> String {
    match &application.memory {
        Some(memory) => format!("{} rows of {} in element {}", memory.rows, memory.width, memory.element),
        None => "none".to_owned(),
    }
}

fn used(used: u32, of: u32) -> String {
    format!("{used}/{of}")
}

/// With the names of the contract, `control.proto`.
fn json(status: &StatusReply) -> Value {
    json!({
        "applications": status.applications.iter().map(application_json).collect::<Vec<_>>(),
        "elements": status.elements.iter().map(element_json).collect::<Vec<_>>(),
    })
}

fn application_json(application: &ApplicationStatus) -> Value {
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
        })
    });
    json!({
        "name": application.name,
        "gaid": application.gaid,
        "epoch": application.epoch,
        "alive": application.alive,
        "service_address": application.service_address,
        "authenticated": application.authenticated,
        "memory": memory,
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
    })
}
