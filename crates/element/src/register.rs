//! Registration of the element with its controller.
//!
//! The reply stream of `RegisterElement` is the element's sign of life: it stays open, and is opened again whenever it
//! ends. An unreachable controller is logged once, not at every attempt.

use std::time::Duration;

use pathcall_auth::{ConnectTarget, ExpectedPeer, PartyRole, Security, innermost};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{ElementGrant, RegisterElementRequest};
use tokio::sync::watch;
use tonic::Status;

use crate::Error;

/// First wait before another attempt; doubled after each failure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before another attempt: a controller that comes back is found within this time.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Interval of keep-alive pings, and the longest wait for an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Registration status of the element at its controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Registration {
    /// Not registered. Frames are served all the same.
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

/// Controller at `url`, not connected yet.
pub(crate) fn controller(url: &str, security: &Security) -> Result<ConnectTarget, Error> {
    Ok(security.target(url, ExpectedPeer::new(PartyRole::Controller))?.keep_alive(KEEP_ALIVE))
}

/// Registers, and registers again whenever the controller is lost. Never returns.
pub(crate) async fn keep_registered(
    controller: ConnectTarget,
    mut request: RegisterElementRequest,
    known: watch::Sender<Registration>,
) {
    let mut retry = RETRY_FIRST;
    let mut reported = false;
    loop {
        let error = match register(&controller, &mut request, &known).await {
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
                if was_known { "lost" } else { "cannot register with" },
            );
            reported = true;
        }
        tokio::time::sleep(retry).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Makes one registration: from connecting until its stream ends. Later registrations have the id that is granted.
async fn register(
    controller: &ConnectTarget,
    request: &mut RegisterElementRequest,
    known: &watch::Sender<Registration>,
) -> Result<(), String> {
    let channel = controller.connect().await.map_err(|error| innermost(&error))?;
    let reply = ControllerClient::new(channel).register_element(request.clone()).await;
    let mut grants = reply.map_err(|status| describe(&status))?.into_inner();
    while let Some(grant) = grants.message().await.map_err(|status| describe(&status))? {
        let ElementGrant { element, endpoint } = grant;
        tracing::info!(controller = %controller.uri(), element, endpoint, "registered");
        request.element = element;
        known.send_replace(Registration::Known { element, endpoint });
    }
    Ok(())
}

/// Formats a status in one line, without its metadata.
fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
