//! What the demo's applications run on: controller and element in this process, on the loopback; or on
//! the first element of a testbed, with the parties of an application on hosts of their own.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use crate::cli::controller::ControllerArgs;
use crate::cli::element::SocketArgs;
use crate::cli::failure::Failure;
use crate::cli::up::Pair;

/// A controller and an element that know each other, and where applications are.
pub(crate) enum Network {
    Loopback(Pair),
    #[cfg(target_os = "linux")]
    Testbed(testbed::Hosts),
}

impl Network {
    /// Starts controller and element; `bed` names a testbed that is up, `xdp`: its element is in the kernel.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    pub(crate) async fn start(bed: Option<&str>, xdp: bool) -> Result<Self, Failure> {
        match bed {
            None => Ok(Self::Loopback(Pair::start(ControllerArgs::scratch(), SocketArgs::scratch()).await?)),
            #[cfg(target_os = "linux")]
            Some(name) => Ok(Self::Testbed(testbed::Hosts::start(name, xdp).await?)),
            #[cfg(not(target_os = "linux"))]
            Some(_) => Err(Failure::NoTestbed),
        }
    }

    /// Where the controller is.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Loopback(pair) => pair.controller.url(),
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.url.clone(),
        }
    }

    /// What the element is, in words.
    pub(crate) fn element(&self) -> &'static str {
        match self {
            Self::Loopback(_) => "an element in user space, to which frames are addressed",
            #[cfg(target_os = "linux")]
            Self::Testbed(_) => "an element between the hosts of the testbed",
        }
    }

    /// What an application is told of where its parties are.
    pub(crate) fn places(&self) -> Vec<OsString> {
        match self {
            Self::Loopback(_) => Vec::new(),
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.places.clone(),
        }
    }

    /// A program, prepared to run on a host of the testbed, whose numbers begin anew after the last; and the host's address.
    /// `None` on the loopback.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    pub(crate) fn on_host(&self, nth: usize, program: &Path) -> Option<(Command, IpAddr)> {
        match self {
            Self::Loopback(_) => None,
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => {
                let host = &hosts.hosts[nth % hosts.hosts.len()];
                Some((host.command(program), host.address().into()))
            }
        }
    }

    pub(crate) async fn shutdown(self) {
        match self {
            Self::Loopback(pair) => pair.shutdown().await,
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.shutdown().await,
        }
    }
}

#[cfg(target_os = "linux")]
mod testbed {
    use std::ffi::OsString;

    use pathcall_testbed::{Node, Testbed};
    use tokio::process::Child;

    use super::super::ready;
    use crate::cli::failure::Failure;

    /// On the element.
    const PORTS: [(&str, u16); 3] = [("--listen", 7700), ("--control", 7701), ("--data", 7702)];

    pub(crate) struct Hosts {
        pub(super) url: String,
        pub(super) places: Vec<OsString>,
        /// Two at least.
        pub(super) hosts: Vec<Node>,
        /// `pathcall up`, on the element.
        pair: Child,
    }

    impl Hosts {
        pub(super) async fn start(name: &str, xdp: bool) -> Result<Self, Failure> {
            let bed = Testbed::open(name)?;
            let element = bed.element(1)?;
            let [server, _client] = [bed.host(1)?, bed.host(2)?];
            let hosts: Vec<Node> = bed.nodes().filter(|node| node.name().is_host()).collect();
            let places: Vec<OsString> = hosts.iter().map(|node| node.file().into()).collect();
            let places = vec![
                "--serve-at".into(),
                server.address().to_string().into(),
                "--namespaces".into(),
                places.join(",".as_ref()),
            ];

            let mut up = element.command(std::env::current_exe().map_err(Failure::NoPlace)?);
            up.arg("up");
            for (option, port) in PORTS {
                up.args([option, &format!("{}:{port}", element.address())]);
            }
            if xdp {
                // The interfaces of the element are called as the hosts are.
                for host in &hosts {
                    up.arg("--xdp").arg(host.name().to_string());
                }
            }
            let spawn = |source| Failure::Spawn { program: "pathcall up, on the testbed's element".to_owned(), source };
            // It has said itself why it does not run.
            let (pair, Some(_)) = ready(up).await.map_err(spawn)? else { return Err(Failure::Unregistered) };
            Ok(Self { url: format!("http://{}:{}", element.address(), PORTS[0].1), places, hosts, pair })
        }

        pub(super) async fn shutdown(mut self) {
            // It may have ended by itself: at Ctrl-C it is told, too.
            let _ = self.pair.kill().await;
        }
    }
}
