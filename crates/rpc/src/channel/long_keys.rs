//! Replacement of a call's long keys by numbers that the server assigns.

use pathcall_endpoint::map::{Key, Operation};
use pathcall_proto::manifest::Method;
use pathcall_proto::v1::NameRequest;
use pathcall_proto::v1::peer_client::PeerClient;
use tonic::Status;

use super::session::{ChannelApplication, MapSession};
use super::transport::Transport;
use crate::key_numbers::REQUEST_KEYS_BYTES;

impl ChannelApplication {
    /// Replaces the operation's long keys by their numbers.
    pub(super) async fn shorten(
        &self,
        method: &Method,
        session: &MapSession,
        transport: &Transport,
        operation: &mut Operation,
    ) -> Result<(), Status> {
        let long: Vec<_> = keys_of(operation).filter(|key| key.is_long()).collect();
        if long.is_empty() { Ok(()) } else { Box::pin(self.number(method, session, transport, long)).await }
    }

    async fn number(
        &self,
        method: &Method,
        session: &MapSession,
        transport: &Transport,
        mut long: Vec<&mut Key>,
    ) -> Result<(), Status> {
        // One request has as many keys as fit.
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
        session: &MapSession,
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
        let failed = |error: Status| {
            let what = format!("{}: cannot get numbers of long keys: {}", method.path, error.message());
            Status::new(error.code(), what)
        };
        let numbers = reply.map_err(failed)?.into_inner().numbers;
        if numbers.len() == keys.len() { Ok(numbers) } else { Err(wrong_count(method)) }
    }
}

fn wrong_count(method: &Method) -> Status {
    Status::internal(format!("{}: the server assigned a wrong number of key numbers", method.path))
}

/// Keys of an operation.
fn keys_of(operation: &mut Operation) -> Box<dyn Iterator<Item = &mut Key> + Send + '_> {
    match operation {
        Operation::Sum { .. } => Box::new(std::iter::empty()),
        Operation::Add { pairs, .. } => Box::new(pairs.iter_mut().map(|(key, _)| key)),
        Operation::Count { keys, .. } | Operation::Clear { keys, .. } => Box::new(keys.iter_mut()),
    }
}
