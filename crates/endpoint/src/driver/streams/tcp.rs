//! Messages by TCP: each with its length before it, 4 bytes.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::messages::Greeting;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::{Connection, DIAL, Outgoing, Remote, Streams, UNDERWAY, Weak, underway};
use crate::messages::{Event, MESSAGE_MAX};

/// Of a message, so much is made room for at a time.
const READ: usize = 256 << 10;
/// The system has no descriptor for another connection: it may have one after this time.
const BREATH: Duration = Duration::from_millis(50);

/// A peer that nothing was heard of for so long is asked whether it is there, by the system; and again, if it does not
/// say so.
const ASK: Duration = Duration::from_secs(10);

/// The writing side of a connection.
pub(super) struct Writer {
    stream: BufWriter<OwnedWriteHalf>,
    /// The peer is gone when it takes nothing for so long.
    stuck: Duration,
    /// Ends with the reading side.
    over: watch::Receiver<()>,
}

/// The reading side of a connection.
struct Reader {
    stream: BufReader<OwnedReadHalf>,
    remote: Remote,
    _over: watch::Sender<()>,
}

/// Takes connections.
pub(super) async fn accept(streams: Weak, listener: TcpListener) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let Some(owner) = streams.get() else { return };
        let (hello, stuck, streams) = (owner.hello(), owner.0.stuck, streams.clone());
        owner.spawn(async move {
            // Whoever connects and says nothing, or nonsense, is gone.
            let Ok(Ok((reader, writer))) = timeout(DIAL, greet(&hello, stuck, stream, from)).await else { return };
            let Some(owner) = streams.get() else { return };
            owner.line_up(reader.remote.listens, Outgoing::Use(Connection::Tcp(writer)));
            drop(owner);
            reader.run(streams).await;
        });
    }
}

/// Makes a connection.
pub(super) async fn dial(streams: &Streams, to: SocketAddr) -> io::Result<Writer> {
    let stream = connect(streams.local_addr().ip(), to).await?;
    let (mut reader, writer) = greet(&streams.hello(), streams.0.stuck, stream, to).await?;
    // It is who takes connections there, whatever it says.
    reader.remote.listens = to;
    streams.spawn(reader.run(streams.weak()));
    Ok(writer)
}

/// Connects from the address that this node listens at, if it is one of the way there: the peer takes the node to be
/// where the connection comes from, and a host may have several addresses.
async fn connect(here: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let there = to.ip();
    let on_the_way = !here.is_unspecified() && here.is_loopback() == there.is_loopback();
    if !on_the_way || here.is_ipv4() != there.is_ipv4() {
        return TcpStream::connect(to).await;
    }
    let socket = if here.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(here, 0))?;
    socket.connect(to).await
}

/// Says who this is and hears who that is.
async fn greet(
    hello: &[u8; Greeting::LEN],
    stuck: Duration,
    stream: TcpStream,
    from: SocketAddr,
) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    // A host that has vanished says nothing, and nothing may be left to be written to it.
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(ASK).with_interval(ASK))?;
    let (read, mut write) = stream.into_split();
    write.write_all(hello).await?;
    let (mut read, mut heard) = (BufReader::with_capacity(READ / 4, read), [0; Greeting::LEN]);
    read.read_exact(&mut heard).await?;
    let remote = Remote::of(&heard, from).ok_or(io::ErrorKind::InvalidData)?;
    let (ends, over) = watch::channel(());
    Ok((Reader { stream: read, remote, _over: ends }, Writer { stream: BufWriter::new(write), stuck, over }))
}

impl Writer {
    pub(super) fn is_open(&self) -> bool {
        self.over.has_changed().is_ok()
    }

    pub(super) async fn over(&self) {
        let mut over = self.over.clone();
        // Nothing is ever said by it, but that it ends.
        while over.changed().await.is_ok() {}
    }

    /// Writes a message; `last`: nothing else is waiting, so it leaves now.
    pub(super) async fn write(&mut self, head: &Bytes, payload: &Bytes, last: bool) -> io::Result<()> {
        // At most MESSAGE_MAX.
        let len = (head.len() + payload.len()) as u32;
        for bytes in [&len.to_be_bytes()[..], head, payload] {
            self.write_all(bytes).await?;
        }
        if last { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let flushed = timeout(self.stuck, self.stream.flush()).await;
        self.taken(flushed)
    }

    /// Writes all of it, as long as the peer takes any.
    async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = timeout(self.stuck, self.stream.write(bytes)).await;
            match self.taken(written)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// What became of writing in time; the connection of a peer that took nothing ends.
    fn taken<T>(&self, written: Result<io::Result<T>, Elapsed>) -> io::Result<T> {
        written.unwrap_or_else(|late| {
            // Its reading side ends as well: nobody else will end it. One that is not connected has ended.
            let _ = SockRef::from(self.stream.get_ref().as_ref()).shutdown(Shutdown::Both);
            Err(late.into())
        })
    }
}

impl Reader {
    /// Reads messages until the connection ends, or its peer writes what is none.
    async fn run(mut self, streams: Weak) {
        while let Ok(message) = self.message(&streams).await {
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
        let mut message = Vec::with_capacity(len.min(READ));
        let mut told = Instant::now();
        while message.len() < len {
            let rest = (len - message.len()).min(READ) as u64;
            if (&mut self.stream).take(rest).read_to_end(&mut message).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if told.elapsed() >= UNDERWAY
                && let Some(streams) = streams.get()
            {
                told = Instant::now();
                (streams.0.sink)(underway(self.remote, &message));
            }
        }
        Ok(message.into())
    }
}
