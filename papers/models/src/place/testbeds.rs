//! Testbeds of the paper (LEO §V-A, Table IV).
//!
//! The paper gives: operations per second of server and card (Fig. 3), compression times of files (Fig. 10), models of
//! the hosts, sizes, and 3 to 9 µs between the hosts. Assumptions: times of look-ups and decompression, such that the
//! processor alone and the accelerator alone sustain about the rates in the paper's figures; links of the presets;
//! ± 5 % variation of the times at nodes; at most 100 ns error of time stamps.

use pathcall_place::model::{NodeRole, Preset};
use pathcall_place::{Hardware, Paths};
use pathcall_sim::place::presets::AppModel;

use super::{NetworkModel, PlaceSetup, Traffic};
use crate::zipf::Zipf;

/// Delay between the hosts (LEO §V-A).
pub const NETWORK_NS: (u64, u64) = (3_000, 9_000);
/// Keys of the key-value store (§IV).
const KEYS: u64 = 20_000_000;
const THETA: f64 = 0.99;
/// Chunks of a file.
const CHUNKS: usize = 4;
/// Addresses of a volume, 4 KiB each.
const BLOCKS: u64 = 1 << 22;

/// Workloads of YCSB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ycsb {
    /// 95 % GET, 5 % PUT.
    B,
    /// GET only.
    C,
}

/// Key-value store on off-path hosts of eight cores.
#[must_use]
pub fn kvs(workload: Ycsb) -> PlaceSetup {
    let paths = paths(&host(Preset::OffPath, 8, 1), AppModel::Kvs);
    let kinds: &[(&str, f64)] = match workload {
        Ycsb::B => &[("GET", 0.95), ("PUT", 0.05)],
        Ycsb::C => &[("GET", 1.0)],
    };
    setting(paths, kinds, Some(Zipf::new(KEYS, THETA)), 1)
}

/// Distributed file system on off-path hosts with this number of cores.
#[must_use]
pub fn dfs(cores: u32) -> PlaceSetup {
    setting(paths(&host(Preset::OffPath, cores, 1), AppModel::Dfs), &[("WRITE", 1.0)], None, CHUNKS)
}

/// Elastic block storage on on-path hosts with this number of cores: reads of 64 KiB (`large`) or 4 KiB.
#[must_use]
pub fn ebs(cores: u32, large: bool) -> PlaceSetup {
    let kind = if large { "READ64K" } else { "READ4K" };
    let mut setting = setting(paths(&host(Preset::OnPath, cores, 1), AppModel::Ebs), &[(kind, 1.0)], None, 1);
    setting.traffic.addresses = BLOCKS;
    setting
}

/// Server of 16 cores with a card of 24 cores, and no network between server and requester (Fig. 3).
#[must_use]
pub fn server() -> PlaceSetup {
    let mut bare = host(Preset::OffPath, 16, 24);
    for link in &mut bare.links {
        (link.bytes_per_second, link.messages_per_second, link.latency_ns) = (1 << 50, 1_000_000_000, 0);
    }
    let mut setting = setting(paths(&bare, AppModel::Server), &[("REQUEST", 1.0)], None, 1);
    setting.network = NetworkModel { network_ns: (0, 0), ordered: false, jitter: JITTER };
    setting
}

const JITTER: u64 = 50;

fn setting(paths: Paths, kinds: &[(&str, f64)], zipf: Option<Zipf>, parts: usize) -> PlaceSetup {
    let kind = |(name, share): &(&str, f64)| (paths.kind(name).expect("a type of the model"), *share);
    let traffic = Traffic { kinds: kinds.iter().map(kind).collect(), zipf, addresses: u64::MAX, parts };
    let network = NetworkModel { network_ns: NETWORK_NS, ordered: false, jitter: JITTER };
    PlaceSetup { paths, traffic, network, noise_ns: 100 }
}

/// Host of a hardware model with this number of cores and of accelerator engines.
fn host(model: Preset, cores: u32, engines: u32) -> Hardware {
    let mut host = Hardware::preset(model);
    for node in &mut host.nodes {
        match node.role {
            NodeRole::Cpu => node.slots = cores,
            NodeRole::Acc => node.slots = engines,
            NodeRole::Nic | NodeRole::Switch => {}
        }
    }
    host
}

/// Paths of an application on two equal hosts.
fn paths(host: &Hardware, app: AppModel) -> Paths {
    Paths::of(host, host, &app.model()).unwrap_or_else(|mistake| panic!("{mistake}"))
}
