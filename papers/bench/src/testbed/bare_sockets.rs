//! Limits of the paths: bare sockets on the hosts of a testbed, without endpoints.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pathcall_endpoint::map::{Key, logical_address};
use pathcall_wire::base::flip;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, ForwardTarget, FrameKind, MapFlags, MapRepr, pairs};

use super::agreement::{AgreementKind, sort};
use super::endpoint_app::{EPOCH, GAID, SERVER, install};
use super::{ANSWER_CPU, CALLER_CPU, ElementTestbed, WaitMode};
use crate::net::percentiles;

/// Port without a server.
const UNUSED_PORT: u16 = 9;
/// Time after which a missing answer counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const FRAME_MAX: usize = 2048;
/// Threshold that one vote does not reach: the element answers it, and each repeat.
const UNREACHED_THRESHOLD: u32 = 1 << 30;

/// Round trips of one repeated vote between a bare socket on host 2 and the element, which answers repeats like the
/// first vote.
pub(crate) fn element(stage: &ElementTestbed, waiting: WaitMode, calls: usize) -> Result<[f64; 2]> {
    let element = stage.element().context("no element")?;
    let (data, control, boot_id) = (element.data_addr(), element.control_addr(), element.boot_id());
    let mut server = stage.free_at(1)?;
    server.set_port(UNUSED_PORT);
    let at = stage.free_at(2)?;
    let caller = stage.host(2, WaitMode::Blocking, (waiting == WaitMode::Spinning).then_some(CALLER_CPU))?;
    let took = caller.run(move || async move {
        let socket = UdpSocket::bind(at)?;
        install(sort(AgreementKind::Vote), control, boot_id, server, vec![socket.local_addr()?]).await?;
        exchange(&socket, waiting, data, &vote(), calls)
    })?;
    percentiles(took)
}

/// Round trips of a frame of the same length between bare sockets on host 2 and host 1.
pub(crate) fn echo(stage: &ElementTestbed, waiting: WaitMode, calls: usize) -> Result<[f64; 2]> {
    let cpu = |cpu| (waiting == WaitMode::Spinning).then_some(cpu);
    let (server_at, caller_at) = (stage.free_at(1)?, stage.free_at(2)?);
    let server = stage.host(1, WaitMode::Blocking, cpu(ANSWER_CPU))?;
    let caller = stage.host(2, WaitMode::Blocking, cpu(CALLER_CPU))?;
    let socket = server.run(move || async move { Ok(UdpSocket::bind(server_at)?) })?;
    let to = socket.local_addr()?;
    let echoing = server.begin(move || async move {
        let mut frame = [0; FRAME_MAX];
        prepare(&socket, waiting)?;
        for _ in 0..calls {
            let (len, from) = receive(&socket, &mut frame)?;
            socket.send_to(&frame[..len], from)?;
        }
        Ok(())
    });
    let calling = move || async move { exchange(&UdpSocket::bind(caller_at)?, waiting, to, &vote(), calls) };
    let took = caller.run(calling)?;
    echoing.wait()?;
    percentiles(took)
}

/// Times of round trips, without the first tenth.
fn exchange(
    socket: &UdpSocket,
    waiting: WaitMode,
    to: SocketAddr,
    frame: &[u8],
    calls: usize,
) -> Result<Vec<Duration>> {
    prepare(socket, waiting)?;
    let (mut took, mut answer) = (Vec::with_capacity(calls), [0; FRAME_MAX]);
    for _ in 0..calls {
        let began = Instant::now();
        socket.send_to(frame, to)?;
        receive(socket, &mut answer)?;
        took.push(began.elapsed());
    }
    Ok(took.split_off(calls / 10))
}

fn prepare(socket: &UdpSocket, waiting: WaitMode) -> Result<()> {
    socket.set_nonblocking(waiting == WaitMode::Spinning)?;
    Ok(socket.set_read_timeout(Some(ANSWER_TIMEOUT))?)
}

/// Next frame, awaited in the mode of the socket.
fn receive(socket: &UdpSocket, frame: &mut [u8]) -> Result<(usize, SocketAddr)> {
    let mut began = None;
    loop {
        match socket.recv_from(frame) {
            // A blocking socket returns the same error after its timeout.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if began.get_or_insert_with(Instant::now).elapsed() > ANSWER_TIMEOUT {
                    return Err(error).context("a frame was lost");
                }
            }
            received => return Ok(received?),
        }
    }
}

/// Vote frame as the endpoint encodes it.
fn vote() -> Vec<u8> {
    let base = BaseRepr {
        flags: flip(1),
        gaid: GAID,
        epoch: EPOCH,
        src: SERVER + 1,
        src_incarnation: SERVER + 1,
        dst: SERVER,
        dst_incarnation: SERVER,
        seq: 1,
        ..BaseRepr::new(FrameKind::MapPairs)
    };
    let key = Key::from("key");
    let key = key.as_bytes();
    let payload = pairs::entry_len(key.len());
    let map = MapRepr {
        to: ForwardTarget::Server as u8,
        flags: MapFlags::BARE | MapFlags::COUNT,
        index: logical_address(key) % sort(AgreementKind::Vote).rows,
        threshold: UNREACHED_THRESHOLD,
        payload_len: payload as u16,
        ..MapRepr::default()
    };
    let mut bytes = vec![0; frame_len(map.flags, 0, payload)];
    let mut frame = emit(&base, &map, &mut bytes);
    let rest = pairs::put(frame.payload_mut(), key, 1);
    assert!(rest.is_some_and(|rest| rest.is_empty()), "room for one pair");
    bytes
}
