//! Messages by TCP, each after its length of 4 bytes; with a key, each piece of a message is followed by its token.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::TokenKey;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::messages::Greeting;
use pathcall_wire::messages::token::DirectionSigner;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::keys::{Handshake, Keys, SignedDirections};
use super::remote::{self, Remote, progress_event};
use super::{CONNECT_TIMEOUT, Connection, Outgoing, PROGRESS_INTERVAL, Streams, Weak};
use pathcall_endpoint::messages::{Event, MESSAGE_MAX};

/// Bytes of a message that are allocated, and signed, at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Delay before the next accept when the system has no free descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time without packets after which the system sends keep-alive probes to the peer, and their interval.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Writing side of a connection.
pub(super) struct Writer {
    stream: BufWriter<OwnedWriteHalf>,
    signer: Option<DirectionSigner>,
    /// Time without progress of a write after which the peer counts as gone.
    write_timeout: Duration,
    /// Closes with the reading side.
    closed: watch::Receiver<()>,
}

/// Reading side of a connection.
struct Reader {
    stream: BufReader<OwnedReadHalf>,
    remote: Remote,
    checks: Option<DirectionSigner>,
    keys: Arc<Keys>,
    /// Watches changes of the key.
    changes: watch::Receiver<Option<TokenKey>>,
    _closed: watch::Sender<()>,
}

/// Accepts connections.
pub(super) async fn accept(streams: Weak, listener: TcpListener) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let Some(owner) = streams.get() else { return };
        let (Ok(handshake), write_timeout, streams) = (owner.start_handshake(), owner.0.write_timeout, streams.clone())
        else {
            continue;
        };
        owner.spawn(async move {
            // Ignore a peer that sends no greeting, an invalid one, or no valid proof.
            let greeting =
                timeout(CONNECT_TIMEOUT, exchange_greetings(handshake, false, write_timeout, stream, from)).await;
            let Ok(Ok((reader, writer))) = greeting else { return };
            let Some(owner) = streams.get() else { return };
            owner.enqueue(reader.remote.listens, Outgoing::Connection(Connection::Tcp(writer)));
            drop(owner);
            reader.run(streams).await;
        });
    }
}

/// Connects to a peer.
pub(super) async fn dial(streams: &Streams, to: SocketAddr) -> io::Result<Writer> {
    let stream = connect(streams.local_addr().ip(), to).await?;
    let (mut reader, writer) =
        exchange_greetings(streams.start_handshake()?, true, streams.0.write_timeout, stream, to).await?;
    // The peer's address is where it listens, whatever its greeting contains.
    reader.remote.listens = to;
    streams.spawn(reader.run(streams.weak()));
    Ok(writer)
}

/// Connects from the address at which this node listens, if it can reach the peer: the peer identifies the node by the
/// source address, and a host may have several.
async fn connect(here: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let peer_ip = to.ip();
    let can_reach = !here.is_unspecified() && here.is_loopback() == peer_ip.is_loopback();
    if !can_reach || here.is_ipv4() != peer_ip.is_ipv4() {
        return TcpStream::connect(to).await;
    }
    let socket = if here.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(here, 0))?;
    socket.connect(to).await
}

/// Exchanges greetings; with a key, both sides prove that they know it.
async fn exchange_greetings(
    Handshake { hello, key, changes, keys }: Handshake,
    connects: bool,
    write_timeout: Duration,
    stream: TcpStream,
    from: SocketAddr,
) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    // A host that has vanished sends no end, and this side may have nothing to write.
    SockRef::from(&stream)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_INTERVAL).with_interval(KEEPALIVE_INTERVAL))?;
    let (read, mut write) = stream.into_split();
    write.write_all(&hello).await?;
    let (mut read, mut received) = (BufReader::with_capacity(CHUNK_BYTES / 4, read), [0; Greeting::LEN]);
    read.read_exact(&mut received).await?;
    let peer_hello = remote::hello(&received).ok_or(io::ErrorKind::InvalidData)?;
    let remote = Remote::new(&peer_hello, from).ok_or(io::ErrorKind::InvalidData)?;
    let (signer, checks) = match (key, peer_hello.session) {
        (None, 0) => (None, None),
        (Some(key), 1..) => {
            let SignedDirections { mut outgoing, mut incoming } =
                SignedDirections::new(&key, connects, &hello, &received);
            write.write_all(&outgoing.proof()).await?;
            let mut proof = [0; TOKEN_LEN];
            read.read_exact(&mut proof).await?;
            if proof != incoming.proof() {
                return Err(keys.reject());
            }
            (Some(outgoing), Some(incoming))
        }
        _ => return Err(keys.reject()),
    };
    // The key changed during the handshake: the proof is void.
    if changes.has_changed().unwrap_or(true) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let (ends, closed) = watch::channel(());
    let reader = Reader { stream: read, remote, checks, keys, changes, _closed: ends };
    Ok((reader, Writer { stream: BufWriter::new(write), signer, write_timeout, closed }))
}

impl Writer {
    pub(super) fn is_open(&self) -> bool {
        self.closed.has_changed().is_ok()
    }

    pub(super) async fn closed(&self) {
        let mut closed = self.closed.clone();
        // The channel carries no values; it closes when the reading side ends.
        while closed.changed().await.is_ok() {}
    }

    /// Writes a message; `last`: no other message waits, so it is flushed now.
    pub(super) async fn write(&mut self, head: &Bytes, payload: &Bytes, last: bool) -> io::Result<()> {
        // At most MESSAGE_MAX.
        let len = (head.len() + payload.len()) as u32;
        self.write_all(&len.to_be_bytes()).await?;
        let mut rest = [&head[..], payload];
        while rest.iter().any(|bytes| !bytes.is_empty()) {
            let mut piece = self.signer.as_mut().map(|signer| signer.piece(len));
            let mut room = if piece.is_some() { CHUNK_BYTES } else { MESSAGE_MAX };
            for bytes in &mut rest {
                let (now, then) = bytes.split_at(bytes.len().min(room));
                piece.iter_mut().for_each(|piece| piece.add(now));
                self.write_all(now).await?;
                (*bytes, room) = (then, room - now.len());
            }
            if let Some(piece) = piece {
                self.write_all(&piece.token()).await?;
            }
        }
        if last { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let flushed = timeout(self.write_timeout, self.stream.flush()).await;
        self.write_result(flushed)
    }

    /// Writes all bytes, as long as the peer makes progress.
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = timeout(self.write_timeout, self.stream.write(bytes)).await;
            match self.write_result(written)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Result of a timed write; on a timeout the connection is shut down.
    fn write_result<T>(&self, written: Result<io::Result<T>, Elapsed>) -> io::Result<T> {
        written.unwrap_or_else(|late| {
            // Ends the reading side as well, which no other code ends. The error of an ended connection is ignored.
            let _ = SockRef::from(self.stream.get_ref().as_ref()).shutdown(Shutdown::Both);
            Err(late.into())
        })
    }
}

impl Reader {
    /// Reads messages until the connection ends, the peer sends invalid data, or the key changes.
    async fn run(mut self, streams: Weak) {
        let mut changes = self.changes.clone();
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            () = self.read_all(&streams) => {}
        }
    }

    async fn read_all(&mut self, streams: &Weak) {
        while let Ok(message) = self.message(streams).await {
            let Some(streams) = streams.get() else { return };
            let Remote { node, listens } = self.remote;
            (streams.0.sink)(Event::Arrived { node, from: listens, message });
        }
    }

    async fn message(&mut self, streams: &Weak) -> io::Result<Bytes> {
        let len = self.stream.read_u32().await? as usize;
        if !(1..=MESSAGE_MAX).contains(&len) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = Vec::with_capacity(len.min(CHUNK_BYTES));
        let mut last_progress = Instant::now();
        while message.len() < len {
            let (written_before, rest) = (message.len(), (len - message.len()).min(CHUNK_BYTES));
            if (&mut self.stream).take(rest as u64).read_to_end(&mut message).await? < rest {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(checks) = &mut self.checks {
                let mut token = [0; TOKEN_LEN];
                self.stream.read_exact(&mut token).await?;
                // At most MESSAGE_MAX.
                let mut piece = checks.piece(len as u32);
                piece.add(&message[written_before..]);
                if piece.token() != token {
                    return Err(self.keys.reject());
                }
            }
            if last_progress.elapsed() >= PROGRESS_INTERVAL
                && let Some(streams) = streams.get()
            {
                last_progress = Instant::now();
                (streams.0.sink)(progress_event(self.remote, &message));
            }
        }
        Ok(message.into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn both_sides_enable_keepalive() {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(free).await.expect("a free port");
        let streams = Streams::tcp(1, free, None, Arc::new(|_| {})).await.expect("a free port");
        let start_handshake = || streams.start_handshake().expect("it begins");
        let (dialled, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().expect("bound")), listener.accept());
        let ((dialled, (accepted, from)), write_timeout) =
            ((dialled.expect("connects"), accepted.expect("connects")), streams.0.write_timeout);
        let to = dialled.peer_addr().expect("connected");
        let (connects, takes) = tokio::join!(
            exchange_greetings(start_handshake(), true, write_timeout, dialled, to),
            exchange_greetings(start_handshake(), false, write_timeout, accepted, from)
        );
        for (_, writer) in [connects.expect("a peer"), takes.expect("a peer")] {
            let socket = SockRef::from(writer.stream.get_ref().as_ref());
            assert!(socket.keepalive().expect("a socket"));
        }
    }
}
