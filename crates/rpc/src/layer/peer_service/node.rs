//! Address of the server's node for delegated calls, and the key of its messages.

use pathcall_driver::node::Transport;
use pathcall_proto::v1::node_reply::Transport as NodeTransport;
use pathcall_proto::v1::{NodeReply, NodeRequest};
use tonic::{Request, Status};

use super::PeerService;
use crate::layer::CallerCredentials;

impl PeerService {
    /// Answers a request for the node. Only callers whose named method the services' checks admit get the key.
    pub(super) async fn node_reply(&self, request: Request<NodeRequest>) -> Result<NodeReply, Status> {
        let Some(handlers) = &self.inner.handlers else {
            return Err(Status::unimplemented("this server has no delegated methods"));
        };
        let transport = match handlers.config().transport {
            Transport::Flows => NodeTransport::Flows,
            Transport::Tcp => NodeTransport::Tcp,
            #[cfg(feature = "quic")]
            Transport::Quic(_) => NodeTransport::Quic,
            _ => return Err(Status::unimplemented("the transport of this server's node is unknown to callers")),
        };
        let token_key = handlers.key();
        if token_key.is_some() {
            self.inner.check_key_transport(&request)?;
            let (credentials, NodeRequest { method }) = (CallerCredentials::of(&request), request.into_inner());
            if !self.inner.catalogue.is_delegated(&method) {
                return Err(Status::invalid_argument(format!("{method:?} is not a delegated method")));
            }
            self.admission.admit_to_layers(&method, credentials.clone()).await?;
            handlers.guard().check(credentials.headers)?;
        }
        let (address, token_key) = (handlers.address().to_string(), token_key.map(|key| key.words().into()));
        Ok(NodeReply { address, transport: transport.into(), token_key })
    }
}
