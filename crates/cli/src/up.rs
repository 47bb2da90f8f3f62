//! `pathcall up`: a controller and an element in one process.

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

/// A controller and an element that know each other.
pub(crate) struct Pair {
    pub(crate) controller: pathcall_control::Handle,
    pub(crate) element: pathcall_element::Handle,
}

impl Pair {
    /// Starts both, and returns once the element is registered: whoever is told that they are ready
    /// gets memory.
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

    /// Stops both; the ports are free when it returns.
    pub(crate) async fn shutdown(self) {
        self.element.shutdown().await;
        self.controller.shutdown().await;
    }
}

pub(crate) async fn run(args: UpArgs) -> Result<(), Failure> {
    let signal = stopped()?;
    let mut pair = Pair::start(args.controller, args.element, args.security.read()?).await?;
    print(&format!("ready: controller at {}, element with {}\n", pair.controller.url(), addresses(&pair.element)))?;
    let ended = tokio::select! {
        () = signal => Ok(()),
        error = pair.controller.failed() => Err(error.into()),
    };
    pair.shutdown().await;
    ended
}
