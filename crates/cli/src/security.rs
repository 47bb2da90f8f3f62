//! TLS options of several commands.

use std::path::PathBuf;

use clap::Args;
use pathcall_auth::{Config, ConnectTarget, Security, innermost};
use tonic::transport::Channel;

use crate::failure::Failure;

/// TLS options of a client.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct TlsArgs {
    /// TLS configuration file (pathcall.toml): own certificate and trusted authorities
    #[arg(long, value_name = "PATH", env = "PATHCALL_TLS")]
    tls: Option<PathBuf>,
}

/// TLS options of a service.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct SecurityArgs {
    #[command(flatten)]
    tls: TlsArgs,
    /// Let other hosts reach control services in plaintext; only for trusted networks
    #[arg(long, conflicts_with = "tls")]
    insecure: bool,
}

impl TlsArgs {
    /// Reads the TLS configuration; without a file, no certificates are used.
    pub(crate) fn read(&self) -> Result<Security, Failure> {
        match &self.tls {
            Some(path) => Ok(Config::read(path)?.into()),
            None => Ok(Security::default()),
        }
    }
}

impl SecurityArgs {
    pub(crate) fn read(&self) -> Result<Security, Failure> {
        Ok(self.tls.read()?.insecure(self.insecure))
    }
}

/// Connects to a controller.
pub(crate) async fn connect(target: &ConnectTarget) -> Result<Channel, Failure> {
    let none = |error: tonic::transport::Error| Failure::NoController { url: target.url(), reason: innermost(&error) };
    target.connect().await.map_err(none)
}
