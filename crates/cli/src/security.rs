//! Options by which commands are told of certificates.

use std::path::PathBuf;

use clap::Args;
use pathcall_auth::{Config, Security, Target, innermost};
use tonic::transport::Channel;

use crate::failure::Failure;

/// Of whoever calls.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct TlsArgs {
    /// File (pathcall.toml) that names this program's certificate, and the authorities that it trusts
    #[arg(long, value_name = "PATH", env = "PATHCALL_TLS")]
    tls: Option<PathBuf>,
}

/// Of whoever is called.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct SecurityArgs {
    #[command(flatten)]
    tls: TlsArgs,
    /// Let other hosts reach control services in plaintext: their network is trusted
    #[arg(long, conflicts_with = "tls")]
    insecure: bool,
}

impl TlsArgs {
    /// What the file says; without one nobody shows certificates.
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
pub(crate) async fn connect(target: &Target) -> Result<Channel, Failure> {
    let none = |error: tonic::transport::Error| Failure::NoController { url: target.url(), reason: innermost(&error) };
    target.connect().await.map_err(none)
}
