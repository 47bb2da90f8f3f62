//! Messages by TCP: each with its length before it, 4 bytes; with a key, each piece of one with its token behind it.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_wire::TokenKey;
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::messages::Greeting;
use pathcall_wire::messages::token::Direction;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::keys::{Beginning, Keys, Signed};
use super::remote::{self, Remote, underway};
use super::{Connection, DIAL, Outgoing, Streams, UNDERWAY, Weak};
use crate::messages::{Event, MESSAGE_MAX};

/// Of a message, so much is made room for at a time, and signed.
const READ: usize = 256 << 10;
/// The system has no descriptor for another connection: it may have one after this time.
const BREATH: Duration = Duration::from_millis(50);

/// A peer that nothing was heard of for so long is asked whether it is there, by the system; and again, if it does not
/// say so.
const ASK: Duration = Duration::from_secs(10);

/// The writing side of a connection.
pub(super) struct Writer {
    stream: BufWriter<OwnedWriteHalf>,
    signs: Option<Direction>,
    /// The peer is gone when it takes nothing for so long.
    stuck: Duration,
    /// Ends with the reading side.
    over: watch::Receiver<()>,
}

/// The reading side of a connection.
struct Reader {
    stream: BufReader<OwnedReadHalf>,
    remote: Remote,
    checks: Option<Direction>,
    keys: Arc<Keys>,
    /// Is told when the key is another one.
    changes: watch::Receiver<Option<TokenKey>>,
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
        let (Ok(beginning), stuck, streams) = (owner.begin(), owner.0.stuck, streams.clone()) else { continue };
        owner.spawn(async move {
            // Whoever connects and says nothing, or nonsense, or can't prove itself, is gone.
            let met = timeout(DIAL, greet(beginning, false, stuck, stream, from)).await;
            let Ok(Ok((reader, writer))) = met else { return };
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
    let (mut reader, writer) = greet(streams.begin()?, true, streams.0.stuck, stream, to).await?;
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

/// Says who this is and hears who that is; with a key, both prove that they know it.
async fn greet(
    Beginning { hello, key, changes, keys }: Beginning,
    dials: bool,
    stuck: Duration,
    stream: TcpStream,
    from: SocketAddr,
) -> io::Result<(Reader, Writer)> {
    stream.set_nodelay(true)?;
    // A host that has vanished says nothing, and nothing may be left to be written to it.
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(ASK).with_interval(ASK))?;
    let (read, mut write) = stream.into_split();
    write.write_all(&hello).await?;
    let (mut read, mut heard) = (BufReader::with_capacity(READ / 4, read), [0; Greeting::LEN]);
    read.read_exact(&mut heard).await?;
    let said = remote::hello(&heard).ok_or(io::ErrorKind::InvalidData)?;
    let remote = Remote::of(&said, from).ok_or(io::ErrorKind::InvalidData)?;
    let (signs, checks) = match (key, said.session) {
        (None, 0) => (None, None),
        (Some(key), 1..) => {
            let Signed { mut ours, mut theirs } = Signed::of(&key, dials, &hello, &heard);
            write.write_all(&ours.proof()).await?;
            let mut proof = [0; TOKEN_LEN];
            read.read_exact(&mut proof).await?;
            if proof != theirs.proof() {
                return Err(keys.refuse());
            }
            (Some(ours), Some(theirs))
        }
        _ => return Err(keys.refuse()),
    };
    // Who has proven another key since has proven nothing.
    if changes.has_changed().unwrap_or(true) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let (ends, over) = watch::channel(());
    let reader = Reader { stream: read, remote, checks, keys, changes, _over: ends };
    Ok((reader, Writer { stream: BufWriter::new(write), signs, stuck, over }))
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
        self.write_all(&len.to_be_bytes()).await?;
        let mut rest = [&head[..], payload];
        while rest.iter().any(|bytes| !bytes.is_empty()) {
            let mut piece = self.signs.as_mut().map(|signs| signs.piece(len));
            let mut room = if piece.is_some() { READ } else { MESSAGE_MAX };
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
    /// Reads messages until the connection ends, its peer writes what is none, or the key is another one.
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
        let mut message = Vec::with_capacity(len.min(READ));
        let mut told = Instant::now();
        while message.len() < len {
            let (there, rest) = (message.len(), (len - message.len()).min(READ));
            if (&mut self.stream).take(rest as u64).read_to_end(&mut message).await? < rest {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(checks) = &mut self.checks {
                let mut token = [0; TOKEN_LEN];
                self.stream.read_exact(&mut token).await?;
                // At most MESSAGE_MAX.
                let mut piece = checks.piece(len as u32);
                piece.add(&message[there..]);
                if piece.token() != token {
                    return Err(self.keys.refuse());
                }
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn each_side_asks_a_silent_peer_whether_it_is_there() {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(free).await.expect("a free port");
        let streams = Streams::tcp(1, free, None, Arc::new(|_| {})).await.expect("a free port");
        let begin = || streams.begin().expect("it begins");
        let (dialled, taken) =
            tokio::join!(TcpStream::connect(listener.local_addr().expect("bound")), listener.accept());
        let ((dialled, (taken, from)), stuck) =
            ((dialled.expect("connects"), taken.expect("connects")), streams.0.stuck);
        let to = dialled.peer_addr().expect("connected");
        let (dials, takes) =
            tokio::join!(greet(begin(), true, stuck, dialled, to), greet(begin(), false, stuck, taken, from));
        for (_, writer) in [dials.expect("a peer"), takes.expect("a peer")] {
            let socket = SockRef::from(writer.stream.get_ref().as_ref());
            assert!(socket.keepalive().expect("a socket"));
        }
    }
}
