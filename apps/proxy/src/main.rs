//! Application proxy: a middlebox chooses the backend of each request (DPC §2.3).
//!
//! ```text
//! delegate:    caller ─► middlebox ─► backend ─► caller                     three messages
//! nested RPC:  caller ─► middlebox ─► backend ─► middlebox ─► caller        four
//! ```
//!
//! Several middleboxes can stand in a row: with n servers in all, there are n + 1 messages, or 2 n. Each value is
//! compared with the content of the backends. [`plain`] has the same servers as plain gRPC, nested.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use apps_report::hops::{self, Caller, DelegateServer, HopReport, KeyPlacement, ServerAddress, all};
use apps_report::{Report, digest};
use clap::{Args, Parser, Subcommand};
use pathcall::delegate::{DelegatedCall, Handlers, NodeTarget};
use tonic::Status;

mod plain;

mod pb {
    pathcall::include_proto!("proxy");
}
use pb::delegated::{KvGet, KvGetNested, KvRead};
use pb::kv_client::KvClient;
use pb::{Key, Value};
use plain::PlainServer;

/// Name of the first middlebox, and prefix of the others' names: `middlebox-2`, …
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
    /// Name of the server: middlebox, middlebox-2, … or backend-…
    #[arg(long)]
    name: String,
    /// All servers, with the same list for each server and caller: middlebox=10.0.0.1:7801,backend-0=10.0.0.2:7801,…
    #[arg(long, value_name = "NAME=IP:PORT", value_delimiter = ',', required = true)]
    servers: Vec<ServerAddress>,
    /// Serve as plain gRPC, with nested calls
    #[arg(long)]
    plain: bool,
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
    /// Baseline, plain gRPC servers elsewhere with nested calls
    #[arg(long, requires = "servers", conflicts_with = "rpc")]
    plain: bool,
    /// Read from the backends themselves, without a middlebox
    #[arg(long, conflicts_with = "rpc")]
    direct: bool,
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

async fn serve(Serve { name, servers, plain }: Serve) -> Result<()> {
    let Some(own) = servers.iter().find(|place| place.name == name) else {
        bail!("server {name:?} is not in the list --servers");
    };
    let placement = KeyPlacement::of(servers.iter().map(|place| place.name.clone()));
    if plain {
        return plain::serve(own.node, plain_server(&name, &servers, placement)?).await;
    }
    let handlers = if name.starts_with(MIDDLEBOX) {
        middlebox(&Caller::new(own.node.ip(), &servers, &pb::PATHCALL).await?, next_of(&name, &servers))
    } else {
        backend(&name, &placement)
    };
    let host = hops::serve(&name, own.node, handlers, &pb::PATHCALL).await?;
    println!("ready {}", host.place.url);
    std::future::pending().await
}

/// Middlebox behind this one; `None` if backends are next.
fn next_of<'a>(name: &str, servers: &'a [ServerAddress]) -> Option<&'a ServerAddress> {
    let number = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(1);
    let next = format!("{MIDDLEBOX}-{}", number + 1);
    servers.iter().find(|place| place.name == next)
}

/// Handlers of a middlebox: pass requests on, or call the next middlebox or backend.
fn middlebox(servers: &Caller, next: Option<&ServerAddress>) -> Handlers {
    let next = next.map(|place| place.name.clone());
    let target = move |key: &str| match &next {
        Some(next) => (true, NodeTarget::Name(next.clone())),
        None => (false, NodeTarget::key(BACKEND, key)),
    };
    let (nested, nested_target) = (servers.clone(), target.clone());
    let get = move |key: Key, call: DelegatedCall<Value>| {
        let passed = match target(&key.key) {
            (true, middlebox) => call.delegate::<KvGet>(middlebox, &key),
            (false, backend) => call.delegate::<KvRead>(backend, &key),
        };
        async move { passed }
    };
    let get_nested = move |key: Key, call: DelegatedCall<Value>| {
        let (is_middlebox, server) = nested_target(&key.key);
        let channel = nested.channel(server);
        async move {
            let mut server = KvClient::new(channel?);
            let stream = if is_middlebox { server.get_nested(key).await } else { server.read(key).await };
            for value in all(stream).await? {
                call.reply(value).await?;
            }
            Ok(())
        }
    };
    let handlers = Handlers::new().directory(servers.directory().clone());
    handlers.handle::<KvGet, _, _>(get).handle::<KvGetNested, _, _>(get_nested)
}

/// Handlers of a backend with its share of the keys.
fn backend(name: &str, placement: &KeyPlacement) -> Handlers {
    let values = Arc::new(values_of(name, placement));
    Handlers::new().handle::<KvRead, _, _>(move |Key { key }, call: DelegatedCall<Value>| {
        let value = values.get(&key).cloned();
        async move {
            let value = value.ok_or_else(|| Status::not_found(format!("no key {key:?} in this backend")))?;
            call.reply(Value { value }).await
        }
    })
}

/// Keys of a backend, with their values.
fn values_of(name: &str, placement: &KeyPlacement) -> BTreeMap<String, Vec<u8>> {
    let own = (0..KEYS).map(key).filter(|key| placement.has(name, BACKEND, key));
    own.map(|key| (key.clone(), value(&key))).collect()
}

/// Server of this name as plain gRPC.
fn plain_server(name: &str, servers: &[ServerAddress], placement: KeyPlacement) -> Result<PlainServer> {
    if !name.starts_with(MIDDLEBOX) {
        return Ok(PlainServer::Backend(values_of(name, &placement)));
    }
    if let Some(next) = next_of(name, servers) {
        return Ok(PlainServer::Middlebox(plain::client(next)?));
    }
    let backends = servers.iter().filter(|place| place.name.starts_with(BACKEND));
    let clients = backends.map(|place| Ok((place.name.clone(), plain::client(place)?)));
    Ok(PlainServer::Last(clients.collect::<Result<_>>()?, placement))
}

fn key(number: u32) -> String {
    format!("user:{number}")
}

/// Content of the backends: a different value for each key.
fn value(key: &str) -> Vec<u8> {
    format!("{key} is {}", digest(std::iter::once(key.as_bytes()))).into_bytes()
}

async fn demo(args: Demo) -> Result<()> {
    if args.plain {
        return demo_plain(args).await;
    }
    let (hosts, nested) = if args.servers.is_empty() {
        let (hosts, nested) = start(args.backends.max(1)).await?;
        (hosts, Some(nested))
    } else {
        (Vec::new(), None)
    };
    let places = if hosts.is_empty() { args.servers } else { hops::places(&hosts) };
    let caller = Caller::new(args.here, &places, &pb::PATHCALL).await?;
    let client = KvClient::new(caller.channel(MIDDLEBOX)?);

    let ask = async |key: Key| {
        if args.direct {
            let backend = caller.channel(NodeTarget::key(BACKEND, &key.key))?;
            return all(KvClient::new(backend).read(key).await).await;
        }
        let mut client = client.clone();
        all(if args.rpc { client.get_nested(key).await } else { client.get(key).await }).await
    };
    let ReadKeys { latencies, took, digest } = read_keys(args.calls, args.json, places.len(), ask).await?;
    let mut report = HopReport::new("proxy", args.rpc, latencies, took, (&caller, nested.as_ref(), &hosts));
    report.digest = digest;
    report.print(args.json);
    Ok(())
}

/// Reads keys from plain gRPC servers.
async fn demo_plain(args: Demo) -> Result<()> {
    let placement = KeyPlacement::of(args.servers.iter().map(|place| place.name.clone()));
    // The first middlebox, or all backends.
    let is_asked = |place: &&ServerAddress| match args.direct {
        true => place.name.starts_with(BACKEND),
        false => place.name == MIDDLEBOX,
    };
    let clients = args.servers.iter().filter(is_asked).map(|place| Ok((&*place.name, plain::client(place)?)));
    let clients: Vec<_> = clients.collect::<Result<_>>()?;
    let ask = async |key: Key| {
        let has = |name: &str| !args.direct || placement.has(name, BACKEND, &key.key);
        let client = clients.iter().find(|(name, _)| has(name)).map(|(_, client)| client.clone());
        let mut client = client.ok_or_else(|| Status::unavailable("--servers names no server of this key"))?;
        client.get(key).await.map(|value| vec![value.into_inner()])
    };
    let ReadKeys { latencies, took, digest } = read_keys(args.calls, args.json, args.servers.len(), ask).await?;
    Report { digest, ..Report::new("proxy", true, latencies, took) }.print(args.json);
    Ok(())
}

/// Result of reading keys.
struct ReadKeys {
    latencies: Vec<Duration>,
    took: Duration,
    digest: String,
}

/// Reads keys one after the other, and checks each value.
async fn read_keys(
    calls: u32,
    json: bool,
    servers: usize,
    ask: impl AsyncFn(Key) -> Result<Vec<Value>, Status>,
) -> Result<ReadKeys> {
    let (mut latencies, mut results) = (Vec::new(), Vec::new());
    let began = Instant::now();
    for number in 0..calls {
        // 7919 is prime: all keys are read before any is read again.
        let key = key((number % KEYS * 7919) % KEYS);
        let sent = Instant::now();
        let values = ask(Key { key: key.clone() }).await.with_context(|| format!("key {key:?}"))?;
        latencies.push(sent.elapsed());
        let expected = [Value { value: value(&key) }];
        ensure!(values == expected, "key {key:?}: expected {expected:?}, got {values:?}");
        results.extend(values);
        if number == 0 && !json {
            println!("{servers} servers, the first value is there");
        }
    }
    let digest = digest(results.iter().map(|result| &*result.value));
    Ok(ReadKeys { latencies, took: began.elapsed(), digest })
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
    hosts.push(hops::serve(MIDDLEBOX, at, middlebox(&nested, None), &pb::PATHCALL).await?);
    Ok((hosts, nested))
}
