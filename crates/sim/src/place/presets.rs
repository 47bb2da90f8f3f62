//! Applications and hosts of the place simulation.

use pathcall_place::model::Preset;
use pathcall_place::{Application, DeviceRole, Hardware, Paths};

/// Application model on two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppModel {
    /// A key-value store.
    Kvs,
    /// A distributed file system.
    Dfs,
    /// Elastic block storage.
    Ebs,
    /// All-reduce.
    AllReduce,
    /// Requests of a server alone.
    Server,
    /// Ledger: two types of requests that change accounts.
    Ledger,
}

/// Host models that the place crate contains.
pub const HOSTS: [Preset; 3] = [Preset::Direct, Preset::OnPath, Preset::OffPath];

impl AppModel {
    /// All applications.
    pub const ALL: [Self; 6] = [Self::Kvs, Self::Dfs, Self::Ebs, Self::AllReduce, Self::Server, Self::Ledger];

    const fn text(self) -> (&'static str, &'static str) {
        match self {
            Self::Kvs => ("kvs.yaml", include_str!("models/kvs.yaml")),
            Self::Dfs => ("dfs.yaml", include_str!("models/dfs.yaml")),
            Self::Ebs => ("ebs.yaml", include_str!("models/ebs.yaml")),
            Self::AllReduce => ("allreduce.yaml", include_str!("models/allreduce.yaml")),
            Self::Server => ("server.yaml", include_str!("models/server.yaml")),
            Self::Ledger => ("ledger.yaml", include_str!("models/ledger.yaml")),
        }
    }

    /// Application model.
    ///
    /// # Panics
    /// If its file, which is part of this crate, is invalid.
    #[must_use]
    pub fn model(self) -> Application {
        let (file, text) = self.text();
        Application::parse(file, text).unwrap_or_else(|mistake| panic!("{mistake}"))
    }
}

/// Paths of an application between two hosts of one model. `further`: accelerators after the first, each with its time
/// of a task in percent of that of the first.
///
/// # Panics
/// If the application cannot run there; every model of the crates can.
#[must_use]
pub fn paths(hosts: Preset, app: AppModel, further: &[u64]) -> Paths {
    let mut application = app.model();
    for task in &mut application.tasks {
        let first = task.compute_ns[DeviceRole::Acc as usize];
        for (ns, percent) in task.compute_ns[DeviceRole::Acc1 as usize..].iter_mut().zip(further) {
            *ns = first.map(|first| (first * percent / 100).max(1));
        }
    }
    let host = host(hosts, further.len());
    Paths::of(&host, &host, &application).unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// Host of a model with this number of further accelerators, linked as the first.
fn host(hosts: Preset, further: usize) -> Hardware {
    let (file, text) = hosts.file();
    let mut all = String::new();
    for line in text.lines() {
        all.extend([line, "\n"]);
        for number in 1..=further {
            let more = line.replacen("  acc:", &format!("  acc{number}:"), 1);
            let more = more.replacen("[acc,", &format!("[acc{number},"), 1);
            let more = more.replacen(", acc]", &format!(", acc{number}]"), 1);
            if more != line {
                all.extend([&more[..], "\n"]);
            }
        }
    }
    Hardware::parse(file, &all).unwrap_or_else(|mistake| panic!("{mistake}"))
}
