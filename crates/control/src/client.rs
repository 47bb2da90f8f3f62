//! The other side: keeps a server's application or an element registered with its controller.
//!
//! The reply stream of a registration is the life sign of who registers. It is held open, and opened
//! again with the same incarnation (or boot id) whenever it ends; each grant replaces the one before.
//! While the controller can't be reached the last grant stays in force: what it is good for is the
//! element's to judge, by its epoch. A server that never had one works in software.

use std::fmt;
use std::time::Duration;

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{ApplicationGrant, ElementGrant, RegisterApplicationRequest, RegisterElementRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::codegen::BoxFuture;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::KEEP_ALIVE;

/// First pause before another try; doubled at each failure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause before another try: a controller that comes back is found within this.
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Where a controller is; not connected.
#[derive(Debug, Clone)]
pub struct Controller {
    endpoint: Endpoint,
}

/// Why a controller can't be spoken to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// The address can't be understood.
    #[error("controller address {got:?}: expected http://host:port, as in http://127.0.0.1:7700")]
    Address {
        /// What was given.
        got: String,
    },
    /// Nobody answers there.
    #[error("no controller answers at {url} ({reason}): start one, or name another with --controller")]
    Unreachable {
        /// Where it was expected.
        url: String,
        /// What the system says.
        reason: String,
    },
}

impl Controller {
    /// The controller at `http://host:port`.
    ///
    /// # Errors
    /// When that is no such address.
    pub fn new(url: &str) -> Result<Self, ControllerError> {
        let unusable = || ControllerError::Address { got: url.to_owned() };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| unusable())?;
        if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port().is_none() {
            return Err(unusable());
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(Self { endpoint })
    }

    /// Connects, for calls that are answered once.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn connect(&self) -> BoxFuture<ControllerClient<Channel>, ControllerError> {
        let endpoint = self.endpoint.clone();
        Box::pin(async move {
            let channel = endpoint.connect().await.map_err(|error| ControllerError::Unreachable {
                url: endpoint.uri().to_string().trim_end_matches('/').to_owned(),
                reason: innermost(&error),
            })?;
            Ok(ControllerClient::new(channel))
        })
    }

    /// Takes ownership of an application and keeps it until the registration is dropped. Every
    /// attempt uses this request, so its incarnation should be this process's. Needs a runtime.
    #[must_use]
    pub fn register_application(&self, request: RegisterApplicationRequest) -> Registration<ApplicationGrant> {
        let what = format!("application {:?}", request.name);
        Registration::start(self.clone(), request, what)
    }

    /// Offers an element's memory until the registration is dropped. The element's control service
    /// should answer already: the controller pushes its tables before it grants anything. Needs a
    /// runtime.
    #[must_use]
    pub fn register_element(&self, request: RegisterElementRequest) -> Registration<ElementGrant> {
        let what = format!("element at {}", request.control_address);
        Registration::start(self.clone(), request, what)
    }
}

/// How a registration stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing<G> {
    /// The latest grant, if there was one; it stays in force while the controller can't be reached.
    pub grant: Option<G>,
    /// Whether the controller knows us now.
    pub contact: Contact,
}

/// Whether the controller knows us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Contact {
    /// No attempt has ended yet.
    #[default]
    Starting,
    /// It does.
    Registered,
    /// It can't be reached; tried again until it can.
    Unreachable(String),
    /// It refuses; tried again, as what it refuses for may end.
    Refused(String),
}

/// Keeps something registered; dropping it ends the registration.
#[derive(Debug)]
pub struct Registration<G> {
    standing: watch::Receiver<Standing<G>>,
    _keeper: JoinSet<()>,
}

impl<G: Clone + fmt::Debug + Send + Sync + 'static> Registration<G> {
    fn start<R: Register<Grant = G>>(controller: Controller, request: R, what: String) -> Self {
        let (tell, standing) = watch::channel(Standing { grant: None, contact: Contact::Starting });
        let mut keeper = JoinSet::new();
        keeper.spawn(Keeper { controller, request, what, tell }.run());
        Self { standing, _keeper: keeper }
    }

    /// How it stands, now and on every change.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing<G>> {
        self.standing.clone()
    }

    /// The first grant, or why there is none yet: whatever the first attempt comes to.
    pub async fn first(&self) -> Standing<G> {
        let mut standing = self.standing.clone();
        let settled = standing.wait_for(|standing| standing.contact != Contact::Starting).await;
        match settled.map(|standing| standing.clone()) {
            Ok(standing) => standing,
            // The keeper runs for as long as this does; only the end of the runtime ends it before.
            Err(_) => self.standing.borrow().clone(),
        }
    }
}

/// A request that is answered by a stream of grants.
trait Register: Clone + Send + Sync + 'static {
    type Grant: Clone + fmt::Debug + Send + Sync + 'static;

    fn register(
        self,
        client: ControllerClient<Channel>,
    ) -> impl Future<Output = Result<Streaming<Self::Grant>, Status>> + Send;
}

impl Register for RegisterApplicationRequest {
    type Grant = ApplicationGrant;

    async fn register(self, mut client: ControllerClient<Channel>) -> Result<Streaming<ApplicationGrant>, Status> {
        client.register_application(self).await.map(tonic::Response::into_inner)
    }
}

impl Register for RegisterElementRequest {
    type Grant = ElementGrant;

    async fn register(self, mut client: ControllerClient<Channel>) -> Result<Streaming<ElementGrant>, Status> {
        client.register_element(self).await.map(tonic::Response::into_inner)
    }
}

struct Keeper<R: Register> {
    controller: Controller,
    request: R,
    what: String,
    tell: watch::Sender<Standing<R::Grant>>,
}

impl<R: Register> Keeper<R> {
    /// Registers, and registers again; never returns. What goes wrong is said once, not at each try.
    async fn run(self) {
        let mut retry = RETRY_FIRST;
        loop {
            let contact = match self.attempt().await {
                Ok(()) => Contact::Unreachable("it ended the registration".into()),
                Err(contact) => contact,
            };
            let before = self.tell.borrow().contact.clone();
            if before == Contact::Registered {
                retry = RETRY_FIRST;
            }
            if std::mem::discriminant(&before) != std::mem::discriminant(&contact) {
                self.report(&contact);
            }
            self.tell.send_if_modified(|standing| {
                let before = std::mem::replace(&mut standing.contact, contact);
                before != standing.contact
            });
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// One registration, from connecting until its stream ends.
    async fn attempt(&self) -> Result<(), Contact> {
        let client = self.controller.connect().await.map_err(|error| Contact::Unreachable(error.to_string()))?;
        let mut grants = self.request.clone().register(client).await.map_err(|status| contact(&status))?;
        while let Some(grant) = grants.message().await.map_err(|status| contact(&status))? {
            tracing::info!(controller = %self.controller.endpoint.uri(), ?grant, "{} is registered", self.what);
            self.tell.send_replace(Standing { grant: Some(grant), contact: Contact::Registered });
        }
        Ok(())
    }

    fn report(&self, contact: &Contact) {
        let what = &self.what;
        match contact {
            Contact::Unreachable(why) => tracing::warn!("{what} is not registered: {why}; trying again"),
            Contact::Refused(why) => tracing::warn!("{what} is refused by the controller: {why}; trying again"),
            Contact::Starting | Contact::Registered => {}
        }
    }
}

/// What a failed call says about the controller.
fn contact(status: &Status) -> Contact {
    let why = status.message().to_owned();
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => Contact::Unreachable(why),
        _ => Contact::Refused(why),
    }
}

/// The cause that says something: the outer ones read "transport error".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
