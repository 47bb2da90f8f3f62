//! `pathcall controller`: runs a controller until it is told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use pathcall_auth::Security;
use pathcall_control::{Config, Handle, LISTEN_DEFAULT, Place};

use crate::failure::Failure;
use crate::security::SecurityArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// TCP address to listen on; port 0 takes a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// File that keeps registrations across restarts; without one they are kept in memory
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
}

impl ControllerArgs {
    pub(crate) async fn start(self, security: Security) -> Result<Handle, Failure> {
        let listener = pathcall_control::bind(self.listen).await?;
        let store = self.store.map_or(Place::Memory, Place::File);
        Ok(pathcall_control::serve(listener, Config::default().store(store).security(security)).await?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct AloneArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

pub(crate) async fn run(args: AloneArgs) -> Result<(), Failure> {
    let mut controller = args.controller.start(args.security.read()?).await?;
    let signal = stopped()?;
    print(&format!("ready: controller at {}\n", controller.url()))?;
    let ended = tokio::select! {
        () = signal => Ok(()),
        error = controller.failed() => Err(error.into()),
    };
    controller.shutdown().await;
    ended
}
