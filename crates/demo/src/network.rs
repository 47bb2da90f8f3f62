//! Network of the demo's applications: controller and element on the loopback, or on the first element of a testbed,
//! with the parties of an application on separate hosts.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::process::Child;

use crate::failure::Failure;
use crate::ready;

/// Options for ports that the system chooses.
const FREE_PORTS: [&str; 6] = ["--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--data", "127.0.0.1:0"];

/// Controller and registered element (`pathcall up`), and the hosts of applications.
pub(crate) enum Network {
    Loopback(UpProcess),
    #[cfg(target_os = "linux")]
    Testbed(testbed::Hosts),
}

/// Running process of `pathcall up`.
pub(crate) struct UpProcess {
    pub(crate) url: String,
    process: Child,
}

impl UpProcess {
    /// Starts the process, and waits until the element is registered. Its warnings are not shown; the reason for which
    /// it does not start is.
    pub(crate) async fn start(mut command: Command) -> Result<Self, Failure> {
        let spawn = |source| Failure::Spawn { program: "pathcall up".to_owned(), source };
        command.stderr(Stdio::piped());
        let (mut process, line) = ready(command).await.map_err(spawn)?;
        let stderr = process.stderr.take();
        let Some(line) = line else {
            if let Some(mut stderr) = stderr {
                // What was written before its end is all there is.
                let _ = tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await;
            }
            return Err(Failure::Unregistered);
        };
        if let Some(mut stderr) = stderr {
            tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
        }
        let url = line.split([' ', ',']).find(|word| word.starts_with("http://")).ok_or(Failure::Unregistered)?;
        Ok(Self { url: url.to_owned(), process })
    }

    pub(crate) async fn shutdown(mut self) {
        // It may have ended by itself: Ctrl-C also reaches it.
        let _ = self.process.kill().await;
    }
}

impl Network {
    /// Starts controller and element by the command `pathcall`. `bed` names a running testbed; with `xdp`, its element
    /// is in the kernel.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    pub(crate) async fn start(pathcall: &Path, bed: Option<&str>, xdp: bool) -> Result<Self, Failure> {
        match bed {
            None => {
                let mut up = Command::new(pathcall);
                up.arg("up").args(FREE_PORTS);
                Ok(Self::Loopback(UpProcess::start(up).await?))
            }
            #[cfg(target_os = "linux")]
            Some(name) => Ok(Self::Testbed(testbed::Hosts::start(pathcall, name, xdp).await?)),
            #[cfg(not(target_os = "linux"))]
            Some(_) => Err(Failure::NoTestbed),
        }
    }

    /// URL of the controller.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Loopback(up) => up.url.clone(),
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.up.url.clone(),
        }
    }

    /// Description of the network.
    pub(crate) fn description(&self) -> String {
        let url = self.url();
        match self {
            Self::Loopback(_) => format!(
                "Loopback: all parties of the parts below share the processors of this machine, which are the limit. \
                 Results must match; rates say little about a network. Started: a controller at {url}, and an element \
                 in user space (overlay mode)."
            ),
            #[cfg(target_os = "linux")]
            Self::Testbed(_) => format!("Started: a controller at {url}, and an element between the testbed's hosts."),
        }
    }

    /// Options of an application for the hosts of its parties.
    pub(crate) fn places(&self) -> Vec<OsString> {
        match self {
            Self::Loopback(_) => Vec::new(),
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.places.clone(),
        }
    }

    /// Command of a program on a host of the testbed, numbered modulo the hosts, and the host's address. `None` on the
    /// loopback.
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
            Self::Loopback(up) => up.shutdown().await,
            #[cfg(target_os = "linux")]
            Self::Testbed(hosts) => hosts.shutdown().await,
        }
    }
}

#[cfg(target_os = "linux")]
mod testbed {
    use std::ffi::OsString;
    use std::path::Path;

    use pathcall_testbed::{Testbed, TestbedNode};

    use super::UpProcess;
    use crate::failure::Failure;

    /// Ports on the element.
    const PORTS: [(&str, u16); 3] = [("--listen", 7700), ("--control", 7701), ("--data", 7702)];

    pub(crate) struct Hosts {
        pub(super) places: Vec<OsString>,
        /// At least two hosts.
        pub(super) hosts: Vec<TestbedNode>,
        /// Process on the element.
        pub(super) up: UpProcess,
    }

    impl Hosts {
        pub(super) async fn start(pathcall: &Path, name: &str, xdp: bool) -> Result<Self, Failure> {
            let bed = Testbed::open(name)?;
            let element = bed.element(1)?;
            let [server, _client] = [bed.host(1)?, bed.host(2)?];
            let hosts: Vec<TestbedNode> = bed.nodes().filter(|node| node.name().is_host()).collect();
            let places: Vec<OsString> = hosts.iter().map(|node| node.file().into()).collect();
            let places = vec![
                "--serve-at".into(),
                server.address().to_string().into(),
                "--namespaces".into(),
                places.join(",".as_ref()),
            ];

            let mut up = element.command(pathcall);
            // A testbed is an isolated network.
            up.args(["up", "--insecure"]);
            for (option, port) in PORTS {
                up.args([option, &format!("{}:{port}", element.address())]);
            }
            if xdp {
                // Interfaces of the element are named after the hosts.
                for host in &hosts {
                    up.arg("--xdp").arg(host.name().to_string());
                }
            }
            Ok(Self { places, hosts, up: UpProcess::start(up).await? })
        }

        pub(super) async fn shutdown(self) {
            self.up.shutdown().await;
        }
    }
}
