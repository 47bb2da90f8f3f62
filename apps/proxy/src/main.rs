//! Application proxy: a middlebox chooses the backend of each request (DPC §2.3).
//!
//! ```text
//! delegate:    caller ─► middlebox ─► backend ─► caller                     three messages
//! nested RPC:  caller ─► middlebox ─► backend ─► middlebox ─► caller        four
//! ```
//!
//! Each value is compared with the content of the backends.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use apps_report::digest;
use apps_report::hops::{self, Caller, DelegateServer, HopReport, KeyPlacement, ServerAddress, all};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::{DelegatedCall, Handlers, NodeTarget};
use tonic::Status;

mod pb {
    pathcall::include_proto!("proxy");
}
use pb::delegated::{KvGet, KvGetNested, KvRead};
use pb::kv_client::KvClient;
use pb::{Key, Value};

/// Name of the middlebox.
const MIDDLEBOX: &str = "middlebox";
/// Prefix of backends' names.
const BACKEND: &str = "backend-";
/// Number of keys in all backends together.
const KEYS: u32 = 10_000;

/// Read keys behind a middlebox
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    what: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run one of the servers until killed
    Serve(Serve),
    /// Read many keys and check each value
    Demo(Demo),
}

#[derive(Debug, Args)]
struct Serve {
    /// Name of the server: middlebox, or backend-…
    #[arg(long)]
    name: String,
    /// All servers, with the same list for each server and caller: middlebox=10.0.0.1:7801,backend-0=10.0.0.2:7801,…
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',', required = true)]
    servers: Vec<ServerAddress>,
}

#[derive(Debug, Args)]
struct Demo {
    /// Servers elsewhere; without any, all run in this process
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',')]
    servers: Vec<ServerAddress>,
    /// Number of backends in this process
    #[arg(long, default_value_t = 4)]
    backends: usize,
    /// Baseline, nested calls: the middlebox calls the backend itself
    #[arg(long)]
    rpc: bool,
    /// Number of keys to read
    #[arg(long, default_value_t = 2000)]
    calls: u32,
    /// Address of this host, as servers reach it
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    here: IpAddr,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse().what {
        Action::Serve(args) => serve(args).await,
        Action::Demo(args) => demo(args).await,
    };
    apps_report::exit(env!("CARGO_PKG_NAME"), done)
}

async fn serve(Serve { name, servers }: Serve) -> Result<()> {
    let Some(own) = servers.iter().find(|place| place.name == name) else {
        bail!("server {name:?} is not in the list --servers");
    };
    let handlers = if name == MIDDLEBOX {
        middlebox(&Caller::new(own.node.ip(), &servers, &pb::PATHCALL).await?)
    } else {
        backend(&name, &KeyPlacement::of(servers.iter().map(|place| place.name.clone())))
    };
    let host = hops::serve(&name, own.node, handlers, &pb::PATHCALL).await?;
    println!("ready {}", host.place.url);
    std::future::pending().await
}

/// Handlers of the middlebox: pass requests on, or call backends.
fn middlebox(backends: &Caller) -> Handlers {
    let nested = backends.clone();
    let get = async |key: Key, call: DelegatedCall<Value>| {
        let backend = NodeTarget::key(BACKEND, &key.key);
        call.delegate::<KvRead>(backend, &key)
    };
    let get_nested = move |key: Key, call: DelegatedCall<Value>| {
        let backend = nested.channel(NodeTarget::key(BACKEND, &key.key));
        async move {
            for value in all(KvClient::new(backend?).read(key).await).await? {
                call.reply(value).await?;
            }
            Ok(())
        }
    };
    let handlers = Handlers::new().directory(backends.directory().clone());
    handlers.handle::<KvGet, _, _>(get).handle::<KvGetNested, _, _>(get_nested)
}

/// Handlers of a backend with its share of the keys.
fn backend(name: &str, placement: &KeyPlacement) -> Handlers {
    let own = (0..KEYS).map(key).filter(|key| placement.has(name, BACKEND, key));
    let values: BTreeMap<String, Vec<u8>> = own.map(|key| (key.clone(), value(&key))).collect();
    let values = Arc::new(values);
    Handlers::new().handle::<KvRead, _, _>(move |Key { key }, call: DelegatedCall<Value>| {
        let value = values.get(&key).cloned();
        async move {
            let value = value.ok_or_else(|| Status::not_found(format!("no key {key:?} in this backend")))?;
            call.reply(Value { value }).await
        }
    })
}

fn key(number: u32) -> String {
    format!("user:{number}")
}

/// Content of the backends: a different value for each key.
fn value(key: &str) -> Vec<u8> {
    format!("{key} is {}", digest(std::iter::once(key.as_bytes()))).into_bytes()
}

async fn demo(args: Demo) -> Result<()> {
    let (hosts, nested) = if args.servers.is_empty() {
        let (hosts, nested) = start(args.backends.max(1)).await?;
        (hosts, Some(nested))
    } else {
        (Vec::new(), None)
    };
    let places = if hosts.is_empty() { args.servers } else { hops::places(&hosts) };
    let caller = Caller::new(args.here, &places, &pb::PATHCALL).await?;
    let mut client = KvClient::new(caller.channel(MIDDLEBOX)?);

    let (mut latencies, mut results) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for number in 0..args.calls {
        // 7919 is prime: all keys are read before any is read again.
        let key = key((number % KEYS * 7919) % KEYS);
        let asked = Key { key: key.clone() };
        let sent = Instant::now();
        let stream = if args.rpc { client.get_nested(asked).await } else { client.get(asked).await };
        let values = all(stream).await.with_context(|| format!("key {key:?}"))?;
        latencies.push(sent.elapsed());
        let expected = [Value { value: value(&key) }];
        ensure!(values == expected, "key {key:?}: expected {expected:?}, got {values:?}");
        results.extend(values);
        if number == 0 && !args.json {
            println!("{} servers, the first value is there", places.len());
        }
    }
    let took = began.elapsed();
    let mut report = HopReport::new("proxy", args.rpc, latencies, took, (&caller, nested.as_ref(), &hosts));
    report.digest = digest(results.iter().map(|result| &*result.value));
    report.print(args.json);
    Ok(())
}

/// Starts all servers in this process. Returns them, and the caller of the middlebox.
async fn start(backends: usize) -> Result<(Vec<DelegateServer>, Caller)> {
    let names: Vec<String> = (0..backends).map(|number| format!("{BACKEND}{number}")).collect();
    let placement = KeyPlacement::of(names.iter().cloned());
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let mut hosts = Vec::new();
    for name in &names {
        hosts.push(hops::serve(name, at, backend(name, &placement), &pb::PATHCALL).await?);
    }
    let nested = Caller::new(at.ip(), &hops::places(&hosts), &pb::PATHCALL).await?;
    hosts.push(hops::serve(MIDDLEBOX, at, middlebox(&nested), &pb::PATHCALL).await?);
    Ok((hosts, nested))
}
