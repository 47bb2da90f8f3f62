//! Command `pathcall up`: runs a controller and an element in one process.

use clap::Args;
use pathcall_auth::Security;
use pathcall_element::Registration;

use crate::controller::ControllerArgs;
use crate::element::{SocketArgs, addresses};
use crate::failure::Failure;
use crate::security::SecurityArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    element: SocketArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

/// Controller with a registered element.
pub(crate) struct LocalNetwork {
    pub(crate) controller: pathcall_control::Handle,
    pub(crate) element: pathcall_element::Handle,
}

impl LocalNetwork {
    /// Starts both and returns once the element is registered, so that applications get memory at once.
    pub(crate) async fn start(
        controller: ControllerArgs,
        element: SocketArgs,
        security: Security,
    ) -> Result<Self, Failure> {
        let mut controller = controller.start(security.clone()).await?;
        let element = element.start(controller.url(), security).await?;
        let mut registration = element.registration();
        let signal = stopped()?;
        tokio::select! {
            known = registration.wait_for(|registration| matches!(registration, Registration::Known { .. })) => {
                known.map_err(|_| Failure::Unregistered)?;
            }
            error = controller.failed() => return Err(error.into()),
            () = signal => return Err(Failure::Interrupted),
        }
        Ok(Self { controller, element })
    }

    /// Stops both. Their ports are free when this returns.
    pub(crate) async fn shutdown(self) {
        self.element.shutdown().await;
        self.controller.shutdown().await;
    }
}

pub(crate) async fn run(args: UpArgs) -> Result<(), Failure> {
    let signal = stopped()?;
    let mut network = LocalNetwork::start(args.controller, args.element, args.security.read()?).await?;
    print(&format!(
        "ready: controller at {}, element with {}\n",
        network.controller.url(),
        addresses(&network.element)
    ))?;
    let ended = tokio::select! {
        () = signal => Ok(()),
        error = network.controller.failed() => Err(error.into()),
    };
    network.shutdown().await;
    ended
}
