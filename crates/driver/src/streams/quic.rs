//! Messages by QUIC: each has a stream of its own, so that no message waits for another.
//!
//! Both ends present certificates. Each accepts a certificate that one of its roots has signed for the name that all
//! nodes share.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::messages::Greeting;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls::pki_types::pem::PemObject;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::rustls::server::WebPkiClientVerifier;
use quinn::rustls::{self, RootCertStore, version::TLS13};
use quinn::{ClientConfig, Endpoint, Incoming, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt};
use tokio::time::timeout;

use super::remote::{self, Remote, progress_event};
use super::{CONNECT_TIMEOUT, Connection, Outgoing, PROGRESS_INTERVAL, PendingBytes, Streams, Weak};
use pathcall_endpoint::messages::{Event, MESSAGE_MAX};

/// Application protocol under TLS (ALPN, RFC 7301).
const PROTOCOL: &[u8] = b"pathcall-messages/1";
/// Messages of one connection in flight at a time.
const MESSAGES_IN_FLIGHT: u32 = 1024;
/// Longest message that is written before the next one begins, bytes.
const SEQUENTIAL_BYTES_MAX: usize = 64 << 10;
/// Bytes of a message that are read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Time without packets after which a peer counts as gone; keep-alives are sent more often.
const QUIC_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// TLS credentials of a node, each in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificate of the node, then the chain to a root.
    pub certificates: Vec<u8>,
    /// Private key of the certificate. `Debug` does not show it.
    pub key: Vec<u8>,
    /// Root certificates that peers' certificates must lead to.
    pub roots: Vec<u8>,
    /// Name in the certificates of all nodes.
    pub name: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// QUIC endpoint shared by all connections.
pub(super) struct Quic {
    endpoint: Endpoint,
    name: String,
}

/// Writing side of a connection.
pub(super) struct Writer(quinn::Connection);

impl Quic {
    pub(super) fn bind(addr: SocketAddr, tls: &Tls) -> io::Result<Self> {
        let (server, client) = configs(tls).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut endpoint = Endpoint::server(server, addr)?;
        endpoint.set_default_client_config(client);
        Ok(Self { endpoint, name: tls.name.clone() })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Connects to a peer.
    pub(super) async fn dial(&self, streams: &Streams, to: SocketAddr) -> io::Result<Writer> {
        let connecting = self.endpoint.connect(to, &self.name).map_err(io::Error::other)?;
        let connection = connecting.await?;
        let remote = exchange_greetings(&streams.hello(0), &connection).await?;
        // The peer's address is where it listens, whatever its greeting contains.
        let remote = Remote { listens: to, ..remote };
        streams.spawn(read_all(streams.weak(), remote, connection.clone()));
        Ok(Writer(connection))
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.endpoint.close(VarInt::from_u32(0), b"");
    }
}

/// Accepts connections.
pub(super) async fn accept(streams: Weak, endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        let Some(owner) = streams.get() else { return };
        owner.spawn(handle_connection(streams.clone(), owner.hello(0), incoming));
    }
}

async fn handle_connection(streams: Weak, hello: [u8; Greeting::LEN], incoming: Incoming) {
    let greeting = async {
        let connection = incoming.await?;
        let remote = exchange_greetings(&hello, &connection).await?;
        io::Result::Ok((remote, connection))
    };
    // Ignore a peer without a trusted certificate or without a greeting.
    let Ok(Ok((remote, connection))) = timeout(CONNECT_TIMEOUT, greeting).await else { return };
    if let Some(owner) = streams.get() {
        owner.enqueue(remote.listens, Outgoing::Connection(Connection::Quic(Writer(connection.clone()))));
    }
    read_all(streams, remote, connection).await;
}

/// Exchanges greetings: each side sends its own on its first stream.
async fn exchange_greetings(hello: &[u8; Greeting::LEN], connection: &quinn::Connection) -> io::Result<Remote> {
    let mut stream = connection.open_uni().await?;
    stream.write_all(hello).await?;
    finish(&mut stream);
    let mut stream = connection.accept_uni().await?;
    let received = stream.read_to_end(Greeting::LEN).await.map_err(io::Error::other)?;
    let remote = remote::hello(&received).and_then(|hello| Remote::new(&hello, connection.remote_address()));
    remote.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads messages until the connection ends.
async fn read_all(streams: Weak, remote: Remote, connection: quinn::Connection) {
    while let Ok(stream) = connection.accept_uni().await {
        let Some(owner) = streams.get() else { return };
        let (streams, connection) = (streams.clone(), connection.clone());
        owner.spawn(async move {
            match message(&streams, remote, stream).await {
                Ok(message) => {
                    let Remote { node, listens } = remote;
                    if let Some(streams) = streams.get() {
                        (streams.0.sink)(Event::Arrived { node, from: listens, message });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    connection.close(VarInt::from_u32(1), b"not a message");
                }
                // The connection has ended, or the peer has reset the stream.
                Err(_) => {}
            }
        });
    }
}

async fn message(streams: &Weak, remote: Remote, mut stream: RecvStream) -> io::Result<Bytes> {
    let mut message: Vec<u8> = Vec::new();
    let mut last_progress = tokio::time::Instant::now();
    while let Some(chunk) = stream.read_chunk(CHUNK_BYTES, true).await.map_err(io::Error::other)? {
        if message.len() + chunk.bytes.len() > MESSAGE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        message.extend_from_slice(&chunk.bytes);
        if last_progress.elapsed() >= PROGRESS_INTERVAL
            && let Some(streams) = streams.get()
        {
            last_progress = tokio::time::Instant::now();
            (streams.0.sink)(progress_event(remote, &message));
        }
    }
    if message.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(message.into()) }
}

impl Writer {
    pub(super) fn is_open(&self) -> bool {
        self.0.close_reason().is_none()
    }

    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Writes a message; a long one is written concurrently with those that follow.
    pub(super) async fn write(&self, head: &Bytes, payload: &Bytes, written: PendingBytes) -> io::Result<()> {
        let stream = self.0.open_uni().await?;
        let all = [head.clone(), payload.clone()];
        if head.len() + payload.len() <= SEQUENTIAL_BYTES_MAX {
            return write_all(stream, all).await;
        }
        tokio::spawn(async move {
            let done = write_all(stream, all).await;
            drop(written);
            done
        });
        Ok(())
    }
}

async fn write_all(mut stream: SendStream, mut all: [Bytes; 2]) -> io::Result<()> {
    stream.write_all_chunks(&mut all).await?;
    finish(&mut stream);
    Ok(())
}

fn finish(stream: &mut SendStream) {
    // A stream that its receiver has stopped needs no end.
    let _ = stream.finish();
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn configs(tls: &Tls) -> Result<(ServerConfig, ClientConfig), Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&tls.certificates).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&tls.key)?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&tls.roots) {
        roots.add(root?)?;
    }
    let roots = Arc::new(roots);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build()?;
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())?;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    // 0-RTT is off by default on both sides.
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(VarInt::from_u32(MESSAGES_IN_FLIGHT));
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    transport.max_idle_timeout(Some(QUIC_IDLE_TIMEOUT.try_into()?));
    transport.keep_alive_interval(Some(KEEPALIVE_INTERVAL));
    let transport = Arc::new(transport);
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
    server.transport_config(Arc::clone(&transport));
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
    client.transport_config(transport);
    Ok((server, client))
}
