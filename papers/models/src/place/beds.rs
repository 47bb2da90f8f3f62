//! The paper's beds (LEO §V-A, Table IV).
//!
//! Given there: what server and card do in a second (Fig. 3), how long a file takes to compress (Fig. 10), the hosts'
//! models, sizes, and 3 to 9 µs between the hosts. Assumed: how long look-ups and decompression take, such that the
//! processor alone and the accelerator alone sustain about what the paper's figures show; links as the presets have them;
//! times at nodes vary by a twentieth either way; time stamps add 100 ns at most.

use pathcall_place::model::{NodeRole, Preset};
use pathcall_place::{Hardware, Paths};
use pathcall_sim::place::beds::App;

use super::{Between, Setting, Traffic};
use crate::zipf::Zipf;

/// Between the hosts (LEO §V-A).
pub const NETWORK_NS: (u64, u64) = (3_000, 9_000);
/// Pairs of the key-value store (§IV).
const KEYS: u64 = 20_000_000;
const THETA: f64 = 0.99;
/// Chunks of a file.
const CHUNKS: usize = 4;
/// Addresses of a volume, each of 4 KiB.
const BLOCKS: u64 = 1 << 22;

/// Workloads of YCSB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ycsb {
    /// 95 % GET, 5 % PUT.
    B,
    /// GET only.
    C,
}

/// A key-value store on off-path hosts of eight cores.
#[must_use]
pub fn kvs(workload: Ycsb) -> Setting {
    let paths = paths(&host(Preset::OffPath, 8, 1), App::Kvs);
    let kinds: &[(&str, f64)] = match workload {
        Ycsb::B => &[("GET", 0.95), ("PUT", 0.05)],
        Ycsb::C => &[("GET", 1.0)],
    };
    setting(paths, kinds, Some(Zipf::new(KEYS, THETA)), 1)
}

/// A distributed file system on off-path hosts of so many cores.
#[must_use]
pub fn dfs(cores: u32) -> Setting {
    setting(paths(&host(Preset::OffPath, cores, 1), App::Dfs), &[("WRITE", 1.0)], None, CHUNKS)
}

/// Elastic block storage on on-path hosts of so many cores: reads of 64 KiB, or of 4 KiB.
#[must_use]
pub fn ebs(cores: u32, large: bool) -> Setting {
    let kind = if large { "READ64K" } else { "READ4K" };
    let mut setting = setting(paths(&host(Preset::OnPath, cores, 1), App::Ebs), &[(kind, 1.0)], None, 1);
    setting.traffic.addresses = BLOCKS;
    setting
}

/// A server of 16 cores with a card of 24, and nothing between it and who asks (Fig. 3).
#[must_use]
pub fn server() -> Setting {
    let mut bare = host(Preset::OffPath, 16, 24);
    for link in &mut bare.links {
        (link.bytes_per_second, link.messages_per_second, link.latency_ns) = (1 << 50, 1_000_000_000, 0);
    }
    let mut setting = setting(paths(&bare, App::Server), &[("REQUEST", 1.0)], None, 1);
    setting.between = Between { network_ns: (0, 0), ordered: false, jitter: JITTER };
    setting
}

const JITTER: u64 = 50;

fn setting(paths: Paths, kinds: &[(&str, f64)], zipf: Option<Zipf>, parts: usize) -> Setting {
    let kind = |(name, share): &(&str, f64)| (paths.kind(name).expect("a type of the model"), *share);
    let traffic = Traffic { kinds: kinds.iter().map(kind).collect(), zipf, addresses: u64::MAX, parts };
    let between = Between { network_ns: NETWORK_NS, ordered: false, jitter: JITTER };
    Setting { paths, traffic, between, noise_ns: 100 }
}

/// A host of a model with so many cores, and so many engines of the accelerator.
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

/// An application on two hosts that are alike.
fn paths(host: &Hardware, app: App) -> Paths {
    Paths::of(host, host, &app.model()).unwrap_or_else(|mistake| panic!("{mistake}"))
}
