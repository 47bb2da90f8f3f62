//! Commands `pathcall function add-server`, `remove-server` and `status`: calls to a running element.

use std::fmt::Write;

use clap::Args;
use pathcall_auth::{ExpectedPeer, PartyRole};
use pathcall_live::LISTEN_DEFAULT;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest};
use serde_json::json;
use tonic::transport::Channel;

use crate::failure::Failure;
use crate::security::{TlsArgs, connect};
use pathcall_console::TextTable;
use pathcall_console::print;

/// Address of the function's controller.
#[derive(Debug, Args)]
pub(super) struct ControllerAddress {
    /// The function's controller, which runs with its element
    #[arg(long, value_name = "URL", default_value_t = format!("http://{LISTEN_DEFAULT}"))]
    pub(super) controller: String,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
}

#[derive(Debug, Args)]
pub(super) struct ChangeArgs {
    /// Servers, as named in the topology
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    at: ControllerAddress,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    at: ControllerAddress,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn add(args: &ChangeArgs) -> Result<(), Failure> {
    change(&args.at, ChangeGroupRequest { add: args.names.clone(), remove: Vec::new() }).await
}

pub(super) async fn remove(args: &ChangeArgs) -> Result<(), Failure> {
    change(&args.at, ChangeGroupRequest { add: Vec::new(), remove: args.names.clone() }).await
}

async fn change(at: &ControllerAddress, request: ChangeGroupRequest) -> Result<(), Failure> {
    let reply = at.call().await?.change_group(request).await.map_err(|status| at.refused(&status))?;
    Ok(print(&format!("servers: {}\n", reply.into_inner().servers.join(" ")))?)
}

pub(super) async fn status(args: &StatusArgs) -> Result<(), Failure> {
    let reply = args.at.call().await?.function_status(FunctionStatusRequest {}).await;
    let reply = reply.map_err(|status| args.at.refused(&status))?.into_inner();
    Ok(print(&if args.json { format_json(&reply) } else { format_text(&reply) })?)
}

fn format_text(reply: &FunctionStatusReply) -> String {
    let mut table = TextTable::new(["server", "alive", "new flows", "wanted", "flows"]);
    let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    for server in &reply.servers {
        let [alive, in_group, wanted] = [server.alive, server.in_group, server.wanted].map(word);
        table.row([server.name.clone(), alive, in_group, wanted, server.flows.to_string()]);
    }
    let changing = if reply.changing { ", flows of the one before are left" } else { "" };
    let mut text = format!("{table}\ngroup {}{changing}\n", reply.version);
    let mut counters: Vec<_> = reply.counters.iter().filter(|(_, count)| **count > 0).collect();
    counters.sort();
    for (name, count) in counters {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:18} {count}");
    }
    text
}

fn format_json(reply: &FunctionStatusReply) -> String {
    let servers = reply.servers.iter().map(|server| {
        json!({
            "name": server.name,
            "alive": server.alive,
            "in_group": server.in_group,
            "wanted": server.wanted,
            "flows": server.flows,
        })
    });
    let status = json!({
        "servers": servers.collect::<Vec<_>>(),
        "version": reply.version,
        "changing": reply.changing,
        "counters": reply.counters,
    });
    format!("{status:#}\n")
}

impl ControllerAddress {
    async fn call(&self) -> Result<FunctionClient<Channel>, Failure> {
        let peer = ExpectedPeer::new(PartyRole::Element).or(PartyRole::Controller);
        let target = self.tls.read()?.target(&self.controller, peer)?;
        Ok(FunctionClient::new(connect(&target).await?))
    }

    fn refused(&self, status: &tonic::Status) -> Failure {
        let (url, reason) = (self.controller.clone(), status.message().to_owned());
        pathcall_live::Error::Refused { url, reason }.into()
    }
}
