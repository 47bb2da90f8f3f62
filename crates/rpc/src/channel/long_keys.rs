//! Asks the server for the numbers of a call's long keys, and puts them in the keys' place.

use pathcall_endpoint::map::{Key, Operation};
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::NameRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tonic::Status;

use super::session::{Session, Slot};
use super::transport::Transport;
use crate::names::REQUEST_KEYS_BYTES;

impl Slot {
    /// Replaces the operation's long keys by their numbers.
    pub(super) async fn shorten(
        &self,
        method: &Method,
        session: &Session,
        transport: &Transport,
        operation: &mut Operation,
    ) -> Result<(), Status> {
        let long: Vec<_> = keys_of(operation).filter(|key| key.is_long()).collect();
        if long.is_empty() { Ok(()) } else { Box::pin(self.number(method, session, transport, long)).await }
    }

    async fn number(
        &self,
        method: &Method,
        session: &Session,
        transport: &Transport,
        mut long: Vec<&mut Key>,
    ) -> Result<(), Status> {
        // The server is asked for as many at a time as fit a request.
        while !long.is_empty() {
            let mut bytes = 0;
            let fitting = long.iter().take_while(|key| {
                bytes += key.as_bytes().len();
                bytes <= REQUEST_KEYS_BYTES
            });
            let later = long.split_off(fitting.count().max(1));
            let mut asked = Vec::new();
            for key in long {
                match session.known.find(key) {
                    Some(number) => *key = Key::numbered(number),
                    None => asked.push(key),
                }
            }
            let numbers = self.ask(method, session, transport, &asked).await?;
            for (key, number) in asked.into_iter().zip(numbers) {
                session.known.learn(key, number);
                *key = Key::numbered(number);
            }
            long = later;
        }
        Ok(())
    }

    async fn ask(
        &self,
        method: &Method,
        session: &Session,
        transport: &Transport,
        keys: &[&mut Key],
    ) -> Result<Vec<u64>, Status> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let request = NameRequest {
            application: self.application.name.into(),
            filter_digest: self.application.digest,
            server_incarnation: session.server,
            session: session.secret().into(),
            keys: keys.iter().filter_map(|key| key.as_str()).map(str::to_owned).collect(),
        };
        let reply = PeerClient::new(transport.channel()).name(request).await;
        let numbers = reply
            .map_err(|error| Status::new(error.code(), format!("{}: long keys: {}", method.path, error.message())))?
            .into_inner()
            .numbers;
        if numbers.len() == keys.len() { Ok(numbers) } else { Err(odd(method)) }
    }
}

fn odd(method: &Method) -> Status {
    Status::internal(format!("{}: the server answered with another number of numbers than there are keys", method.path))
}

/// The keys of an operation.
fn keys_of(operation: &mut Operation) -> Box<dyn Iterator<Item = &mut Key> + Send + '_> {
    match operation {
        Operation::Sum { .. } => Box::new(std::iter::empty()),
        Operation::Add { pairs, .. } => Box::new(pairs.iter_mut().map(|(key, _)| key)),
        Operation::Count { keys, .. } | Operation::Clear { keys, .. } => Box::new(keys.iter_mut()),
    }
}
