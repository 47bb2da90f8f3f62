//! Client of etcd: the few requests and fields of its API that an owner's store needs.
//!
//! The messages have the field numbers of etcd's `rpc.proto` and `kv.proto` (v3).

use std::io;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

/// Key with its value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EtcdEntry {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<EtcdEntry>,
    #[prost(bool, tag = "3")]
    more: bool,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
}

/// Condition of a transaction: the key was created at this revision; 0: there is no such key.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    result: i32,
    /// 1: revision at which the key was created.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

/// Operation of a transaction; one of the fields is set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EtcdOperation {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    delete: Option<DeleteRangeRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<EtcdOperation>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseHeader {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    ttl: i64,
}

/// Connection to etcd's servers.
#[derive(Debug, Clone)]
pub(super) struct EtcdClient(Channel);

impl EtcdOperation {
    /// Sets a key; it is removed with its lease, if that is not 0.
    pub(super) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> Self {
        Self { put: Some(PutRequest { key: key.to_vec(), value, lease }), delete: None }
    }

    /// Removes the keys from `from` to `to`, without `to`.
    pub(super) fn delete(from: &[u8], to: &[u8]) -> Self {
        Self { put: None, delete: Some(DeleteRangeRequest { key: from.to_vec(), range_end: to.to_vec() }) }
    }
}

impl EtcdClient {
    /// Client of these servers; connects when it is used.
    pub(super) fn new(endpoints: &[String], limit: std::time::Duration) -> io::Result<Self> {
        let endpoints: Result<Vec<Endpoint>, _> =
            endpoints.iter().map(|url| Endpoint::from_shared(url.clone())).collect();
        let endpoints = endpoints.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let endpoints = endpoints.into_iter().map(|endpoint| endpoint.connect_timeout(limit).timeout(limit));
        Ok(Self(Channel::balance_list(endpoints)))
    }

    /// Keys from `from` to `to`, without `to`, in order.
    pub(super) async fn range(&self, from: &[u8], to: &[u8]) -> Result<Vec<EtcdEntry>, Status> {
        let (mut entries, mut key) = (Vec::new(), from.to_vec());
        loop {
            let request = RangeRequest { key, range_end: to.to_vec(), limit: PAGE };
            let RangeResponse { kvs, more } = self.unary("/etcdserverpb.KV/Range", request).await?;
            entries.extend(kvs);
            let Some(last) = entries.last().filter(|_| more) else { return Ok(entries) };
            key = [&last.key[..], &[0]].concat();
        }
    }

    /// Executes the operations if `key` was created at `revision`, or does not exist and `revision` is 0. Returns the revision
    /// of the transaction; `None` if the condition does not hold.
    pub(super) async fn transact(
        &self,
        (key, revision): (&[u8], i64),
        success: Vec<EtcdOperation>,
    ) -> Result<Option<i64>, Status> {
        let compare = vec![Compare { result: 0, target: 1, key: key.to_vec(), create_revision: Some(revision) }];
        let TxnResponse { header, succeeded } =
            self.unary("/etcdserverpb.KV/Txn", TxnRequest { compare, success }).await?;
        Ok(header.filter(|_| succeeded).map(|header| header.revision))
    }

    /// Grants a lease of this many seconds; returns its id.
    pub(super) async fn grant_lease(&self, ttl: i64) -> Result<i64, Status> {
        let LeaseGrantResponse { id } = self.unary("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl }).await?;
        Ok(id)
    }

    /// Renews a lease; false if it has ended.
    pub(super) async fn renew_lease(&self, id: i64) -> Result<bool, Status> {
        let requests = tokio_stream::once(LeaseKeepAliveRequest { id });
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let mut answers = grpc.streaming(Request::new(requests), path, codec).await?.into_inner();
        Ok(answers.message().await?.is_some_and(|answer| answer.ttl > 0))
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let codec = ProstCodec::<Q, A>::default();
        let mut grpc = self.ready().await?;
        Ok(grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?.into_inner())
    }
}

/// Maximum number of keys in one answer.
const PAGE: i64 = 64;
