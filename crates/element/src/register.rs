//! Keeps the element known to its controller.
//!
//! The reply stream of `RegisterElement` is the element's life sign: it is held open, and opened
//! again whenever it ends. A controller that can't be reached is reported once, not at every try.

use std::time::Duration;

use pathcall_auth::{Peer, Role, Security, Target, innermost};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{ElementGrant, RegisterElementRequest};
use tokio::sync::watch;
use tonic::Status;

use crate::Error;

/// First wait before another try; doubled at each failure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before another try: a controller that comes back is found within this.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often a silent connection is asked whether its other end lives, and how long it may take.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What the controller knows the element as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Registration {
    /// Not registered (yet, or any more); frames are served all the same.
    #[default]
    Unknown,
    /// Registered.
    Known {
        /// Id of the element.
        element: u32,
        /// The element's own endpoint id.
        endpoint: u32,
    },
}

/// The controller at `url`, not connected yet.
pub(crate) fn controller(url: &str, security: &Security) -> Result<Target, Error> {
    Ok(security.target(url, Peer::new(Role::Controller))?.keep_alive(KEEP_ALIVE))
}

/// Registers, and registers again whenever the controller is lost; never returns.
pub(crate) async fn keep_registered(
    controller: Target,
    request: RegisterElementRequest,
    known: watch::Sender<Registration>,
) {
    let mut retry = RETRY_FIRST;
    let mut reported = false;
    loop {
        let error = match register(&controller, &request, &known).await {
            Ok(()) => "it ended the registration".to_owned(),
            Err(error) => error,
        };
        let was_known = known.send_replace(Registration::Unknown) != Registration::Unknown;
        if was_known {
            retry = RETRY_FIRST;
            reported = false;
        }
        if !reported {
            tracing::warn!(
                controller = %controller.uri(),
                "{} the controller: {error}; trying again until it answers",
                if was_known { "lost" } else { "can't register with" },
            );
            reported = true;
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// One registration, from connecting until its stream ends.
async fn register(
    controller: &Target,
    request: &RegisterElementRequest,
    known: &watch::Sender<Registration>,
) -> Result<(), String> {
    let channel = controller.connect().await.map_err(|error| innermost(&error))?;
    let reply = ControllerClient::new(channel).register_element(request.clone()).await;
    let mut grants = reply.map_err(|status| describe(&status))?.into_inner();
    while let Some(grant) = grants.message().await.map_err(|status| describe(&status))? {
        let ElementGrant { element, endpoint } = grant;
        tracing::info!(controller = %controller.uri(), element, endpoint, "registered");
        known.send_replace(Registration::Known { element, endpoint });
    }
    Ok(())
}

/// A status in one line, without its metadata.
fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
