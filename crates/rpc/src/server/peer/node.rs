//! Where this server takes calls that may be passed on, and the key of its messages.

use pathcall_endpoint::driver::node::Transport;
use pathcall_proto::v1::node_reply::Transport as Said;
use pathcall_proto::v1::{NodeReply, NodeRequest};
use tonic::{Request, Status};

use super::PeerService;
use crate::server::Credentials;

impl PeerService {
    /// The key is for callers that the services' own checks let call the method that they name.
    pub(super) async fn node_reply(&self, request: Request<NodeRequest>) -> Result<NodeReply, Status> {
        let Some(handlers) = &self.inner.handlers else {
            return Err(Status::unimplemented("this server takes no calls that may be passed on"));
        };
        let transport = match handlers.config().transport {
            Transport::Flows => Said::Flows,
            Transport::Tcp => Said::Tcp,
            #[cfg(feature = "quic")]
            Transport::Quic(_) => Said::Quic,
            _ => return Err(Status::unimplemented("callers can't be told what carries messages here")),
        };
        let token_key = handlers.key();
        if token_key.is_some() {
            self.inner.keys_may_go(&request)?;
            let (credentials, NodeRequest { method }) = (Credentials::of(&request), request.into_inner());
            if !self.inner.catalogue.is_delegated(&method) {
                return Err(Status::invalid_argument(format!("{method:?} is no method that may be passed on")));
            }
            self.admission.admit_to_layers(&method, credentials.clone()).await?;
            handlers.guard().check(credentials.headers)?;
        }
        let (address, token_key) = (handlers.address().to_string(), token_key.map(|key| key.words().into()));
        Ok(NodeReply { address, transport: transport.into(), token_key })
    }
}
