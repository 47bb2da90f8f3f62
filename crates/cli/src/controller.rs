//! Command `pathcall controller`: runs a controller until it is stopped.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use pathcall_auth::Security;
use pathcall_control::{Config, Handle, LISTEN_DEFAULT, StoreLocation};

use crate::failure::Failure;
use crate::security::SecurityArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// TCP address to listen on; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// File that stores registrations across restarts [default: memory only]
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
}

impl ControllerArgs {
    pub(crate) async fn start(self, security: Security) -> Result<Handle, Failure> {
        let listener = pathcall_control::bind(self.listen).await?;
        let store = self.store.map_or(StoreLocation::Memory, StoreLocation::File);
        Ok(pathcall_control::serve(listener, Config::default().store(store).security(security)).await?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ControllerCommandArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

pub(crate) async fn run(args: ControllerCommandArgs) -> Result<(), Failure> {
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
