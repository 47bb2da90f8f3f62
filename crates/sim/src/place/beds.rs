//! Applications on hosts, as the simulator has them.

use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Paths};

/// What runs on two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum App {
    /// A key-value store.
    Kvs,
    /// A distributed file system.
    Dfs,
    /// Elastic block storage.
    Ebs,
    /// All-reduce.
    AllReduce,
    /// A server's requests alone.
    Server,
    /// A ledger: two types of requests that change accounts.
    Ledger,
}

/// The models of hosts that the crate comes with.
pub const HOSTS: [Preset; 3] = [Preset::Direct, Preset::OnPath, Preset::OffPath];

impl App {
    /// All.
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

    /// What it needs.
    ///
    /// # Panics
    /// When its file, which is part of this crate, has a mistake.
    #[must_use]
    pub fn model(self) -> Application {
        let (file, text) = self.text();
        Application::parse(file, text).unwrap_or_else(|mistake| panic!("{mistake}"))
    }
}

/// An application on two hosts of a model.
///
/// # Panics
/// When the application can't run there, which no model that comes with the crates does.
#[must_use]
pub fn paths(hosts: Preset, app: App) -> Paths {
    let host = Hardware::preset(hosts);
    Paths::of(&host, &host, &app.model()).unwrap_or_else(|mistake| panic!("{mistake}"))
}
