//! HTTP/2 built by hand, with invalid sequences that no library sends.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_HEADERS: u8 = 4;
const HEAD: usize = 9;
/// Time after which a peer that takes no bytes is considered to have stopped reading.
const TAKEN: Duration = Duration::from_secs(5);

/// TCP connection.
pub(super) struct Raw(pub(super) TcpStream);

impl Raw {
    /// Opens a connection without sending a byte.
    pub(super) async fn connect(to: SocketAddr) -> Self {
        Self(TcpStream::connect(to).await.expect("connection to the port"))
    }

    /// Opens a connection with preface and settings.
    pub(super) async fn begin(to: SocketAddr) -> Self {
        let mut raw = Self::connect(to).await;
        raw.write(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
        raw
    }

    /// Writes while the peer reads. Returns whether it does.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> bool {
        matches!(timeout(TAKEN, self.0.write_all(bytes)).await, Ok(Ok(())))
    }

    /// Reads until the peer has closed or announces it.
    pub(super) async fn until_closed(&mut self) -> &'static str {
        let mut all = Vec::new();
        let mut buffer = [0; 16_384];
        loop {
            let Ok(len) = self.0.read(&mut buffer).await else { return "closed" };
            if len == 0 {
                return "closed";
            }
            all.extend_from_slice(&buffer[..len]);
            while let Some(len) = all
                .first_chunk::<HEAD>()
                .map(|head| HEAD + (usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])))
            {
                if all.get(3) == Some(&GOAWAY) {
                    return "told to go away";
                }
                if all.len() < len {
                    break;
                }
                all.drain(..len);
            }
        }
    }
}

/// HTTP/2 frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Header block of a call without credential.
pub(super) fn call(path: &str) -> Vec<u8> {
    // HPACK: `:method: POST` and `:scheme: http` by number, the others as literals.
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.as_bytes());
    for (name, value) in [(":authority", "h"), ("te", "trailers"), ("content-type", "application/grpc")] {
        block.extend([0, name.len() as u8]);
        block.extend(name.as_bytes());
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}
