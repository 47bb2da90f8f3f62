//! Plain gRPC servers of the application: a middlebox asks the next server, and waits for its answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use apps_report::call_path;
use apps_report::hops::{KeyPlacement, ServerAddress};
use apps_report::nodes::bind;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::pb::plain_kv_client::PlainKvClient;
use crate::pb::plain_kv_server::{PlainKv, PlainKvServer};
use crate::pb::{Key, Value};

/// Handler of one server.
#[derive(Debug, Clone)]
pub(crate) enum PlainServer {
    /// Values of a backend.
    Backend(BTreeMap<String, Vec<u8>>),
    /// Next middlebox.
    Middlebox(PlainKvClient<Channel>),
    /// Last middlebox: backends by name, and their keys.
    Last(BTreeMap<String, PlainKvClient<Channel>>, KeyPlacement),
}

/// Client of this server, which connects on its first call.
pub(crate) fn client(server: &ServerAddress) -> Result<PlainKvClient<Channel>> {
    Ok(PlainKvClient::new(Endpoint::from_shared(server.url.clone())?.connect_lazy()))
}

/// Serves until the process ends, and prints a line when ready.
pub(crate) async fn serve(at: SocketAddr, server: PlainServer) -> Result<()> {
    let incoming = TcpIncoming::from(bind(at).await?).with_nodelay(Some(true));
    println!("ready http://{at}");
    Ok(call_path::serve(Routes::new(PlainKvServer::new(server)), None, incoming).await?)
}

#[tonic::async_trait]
impl PlainKv for PlainServer {
    async fn get(&self, request: Request<Key>) -> Result<Response<Value>, Status> {
        let key = request.into_inner().key;
        let missing = || Status::not_found(format!("no key {key:?} in this backend"));
        match self {
            Self::Backend(values) => {
                let value = values.get(&key).cloned().ok_or_else(missing)?;
                Ok(Response::new(Value { value }))
            }
            Self::Middlebox(next) => next.clone().get(Key { key }).await,
            Self::Last(backends, placement) => {
                let backend = backends.iter().find(|(name, _)| placement.has(name, crate::BACKEND, &key));
                let (_, backend) = backend.ok_or_else(missing)?;
                backend.clone().get(Key { key }).await
            }
        }
    }
}
