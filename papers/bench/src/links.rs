//! `links`: round trip of a frame between two threads, and frames per second: by shared memory, by batched UDP and by
//! single UDP datagrams, each compared with the limit of its kind; and a lock through an element, by shared memory and
//! by UDP.

mod reflector;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use pathcall_driver::link::{Link, PollMode, SharingRole};
use pathcall_element::Config;
use pathcall_shm::{Consumer, Producer, RingMap, RingSide, ring_pair};
use tokio::runtime::Runtime;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::net::{FREE, Network, percentiles, runtime};
use crate::round_trip::{CALLER_CPU, ELEMENT_CPU, POLL_TIME, Pinned, pathcall};
use reflector::{Gate, Reflector};

pub(crate) const FIGURE: Figure = Figure {
    name: "links",
    about: "frames between two threads, by shared memory and by UDP",
    kind: Kind::Measured,
    run,
};

/// Frame with 32 keyed pairs.
const FRAME: [u8; 332] = [7; 332];
/// Frames in flight in measurements of the rate.
const WINDOW: usize = 64;
const TRIPS: usize = 20_000;
const TRIPS_QUICK: usize = 200;
const TIME: Duration = Duration::from_millis(700);
const TIME_QUICK: Duration = Duration::from_millis(20);
const CALLS: usize = 2000;
const CALLS_QUICK: usize = 20;
/// Polling time after which a frame counts as lost.
const FRAME_TIMEOUT: Duration = Duration::from_secs(2);

fn run(bench: &mut Bench) -> Result<()> {
    round_trips(bench)?;
    rates(bench)?;
    locks(bench)
}

fn round_trips(bench: &mut Bench) -> Result<()> {
    let trips = bench.size(TRIPS, TRIPS_QUICK);
    let _pinned = Pinned::to(CALLER_CPU)?;
    let columns = |case: &str, peer: &str| {
        ["p50", "p99"].map(|share| Metric::new(format!("{case}, {share}"), peer, "us", Better::Lower))
    };
    let limit = |metrics: [Metric; 2]| metrics.map(Metric::peer_is_limit);
    let (mut ring, mut udp) = (LinkPair::start(Medium::Memory, true)?, LinkPair::start(Medium::Udp, true)?);
    let case = "there and back by memory, looking";
    let mut bare = BareRings::start()?;
    bench.compare(limit(columns(case, "bare ring")), || ring.round_trips(trips), || bare.round_trips(trips))?;
    drop(bare);
    bench.compare(columns(case, "UDP, looking"), || ring.round_trips(trips), || udp.round_trips(trips))?;
    drop(ring);
    let mut socket = SocketPair::start()?;
    let case = "there and back by UDP, looking";
    bench.compare(limit(columns(case, "bare socket")), || udp.round_trips(trips), || socket.round_trips(trips))?;
    drop((udp, socket));
    let (mut ring, mut udp) = (LinkPair::start(Medium::Memory, false)?, LinkPair::start(Medium::Udp, false)?);
    let case = "there and back by memory, waiting";
    bench.compare(columns(case, "UDP, waiting"), || ring.round_trips(trips), || udp.round_trips(trips))
}

fn rates(bench: &mut Bench) -> Result<()> {
    let time = bench.size(TIME, TIME_QUICK);
    let _pinned = Pinned::to(CALLER_CPU)?;
    let metric = |case: &str, peer: &str| Metric::new(case, peer, "frames/s", Better::Higher);
    let case = "through a reflector by memory";
    let mut ring = LinkPair::start(Medium::Memory, true)?;
    let mut bare = BareRings::start()?;
    bench.compare([metric(case, "bare ring").peer_is_limit()], || ring.rate(time), || bare.rate(time))?;
    drop(bare);
    let mut udp = LinkPair::start(Medium::Udp, true)?;
    bench.compare([metric(case, "UDP in batches")], || ring.rate(time), || udp.rate(time))?;
    drop(ring);
    let mut socket = SocketPair::start()?;
    let case = "through a reflector by UDP in batches";
    bench.compare([metric(case, "UDP frame by frame")], || udp.rate(time), || socket.rate(time))
}

fn locks(bench: &mut Bench) -> Result<()> {
    let calls = bench.size(CALLS, CALLS_QUICK);
    let runtime = runtime()?;
    for (busy, how) in [(false, "waiting"), (true, "busy polling")] {
        let network = |shared_memory| {
            let cpu = busy.then_some(ELEMENT_CPU);
            let element = Config::default().busy_poll(busy).cpu(cpu).shared_memory(shared_memory);
            runtime.block_on(Network::start_with(element))
        };
        let _pinned = if busy { Some(Pinned::to(CALLER_CPU)?) } else { None };
        let look = if busy { POLL_TIME } else { Duration::ZERO };
        // One element at a time: two polling elements would share a processor.
        let turn = |shared_memory| -> Result<[f64; 2]> {
            let network = network(shared_memory)?;
            let mut team = runtime.block_on(pathcall(&network, look))?;
            let took = team.lock(&runtime, calls);
            drop(team);
            runtime.block_on(network.shutdown());
            took
        };
        let metrics = ["p50", "p99"].map(|share| {
            let case = format!("a lock through an element by memory, {how}, {share}");
            Metric::new(case, "by UDP", "us", Better::Lower)
        });
        bench.compare(metrics, || turn(true), || turn(false))?;
    }
    Ok(())
}

/// Medium of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    Memory,
    Udp,
}

/// Link with its reflector.
struct LinkPair {
    runtime: Runtime,
    link: Link,
    to: SocketAddr,
    polling: bool,
    reflector: Reflector,
}

impl LinkPair {
    fn start(medium: Medium, polling: bool) -> Result<Self> {
        let (bound, binding) = std::sync::mpsc::channel();
        let reflector = Reflector::start(move |gate| {
            let runtime = io_runtime()?;
            runtime.block_on(async {
                let mut link = Link::bind(FREE)?;
                if medium == Medium::Memory {
                    link.share_memory(SharingRole::Offer)?;
                }
                bound.send(link.local_addr())?;
                while gate.opens() {
                    let how = if polling { PollMode::Always } else { PollMode::IfReady };
                    if !polling {
                        // The gate may close between two frames.
                        let _ = tokio::time::timeout(Duration::from_millis(10), link.readable()).await;
                    }
                    link.exchange(how, |out, from, _, frame| out.queue(from, frame))?;
                    link.flush();
                }
                Ok(())
            })
        });
        let to = binding.recv().context("the reflector did not start")?;
        let runtime = io_runtime()?;
        let _inside = runtime.enter();
        let mut link = Link::bind(FREE)?;
        if medium == Medium::Memory {
            link.share_memory(SharingRole::Request)?;
            link.request_memory(pathcall_wire::Instant(0), Some(to));
            let (began, _turn) = (Instant::now(), reflector.turn());
            while link.memory_peers().count() == 0 {
                ensure!(began.elapsed() < FRAME_TIMEOUT, "shared memory was not negotiated");
                runtime.block_on(link.readable())?;
                link.recv(|_, _, _| ())?;
            }
        }
        drop(_inside);
        Ok(Self { runtime, link, to, polling, reflector })
    }

    fn round_trips(&mut self, trips: usize) -> Result<[f64; 2]> {
        let Self { runtime, link, to, polling, reflector } = self;
        let _turn = reflector.turn();
        runtime.block_on(async {
            let mut took = Vec::with_capacity(trips);
            for _ in 0..trips {
                let began = Instant::now();
                link.queue(*to, &FRAME);
                link.flush();
                loop {
                    let back = if *polling {
                        link.exchange(PollMode::Always, |_, _, _, _| ())?
                    } else {
                        tokio::time::timeout(FRAME_TIMEOUT, link.readable()).await.context("a frame was lost")??;
                        link.recv(|_, _, _| ())?
                    };
                    if back > 0 {
                        break;
                    }
                    ensure!(began.elapsed() < FRAME_TIMEOUT, "a frame was lost");
                }
                took.push(began.elapsed());
            }
            percentiles(took)
        })
    }

    fn rate(&mut self, time: Duration) -> Result<[f64; 1]> {
        let Self { link, to, reflector, .. } = self;
        let _turn = reflector.turn();
        rate(time, |send| {
            (0..send).for_each(|_| link.queue(*to, &FRAME));
            link.flush();
            Ok(link.exchange(PollMode::Always, |_, _, _, _| ())?)
        })
    }
}

/// Rate of returning frames per second. `turn` sends up to the given number of frames, and returns the number received.
fn rate(time: Duration, mut turn: impl FnMut(usize) -> Result<usize>) -> Result<[f64; 1]> {
    let began = Instant::now();
    let (mut send, mut under_way, mut frames, mut last) = (WINDOW, 0, 0_usize, began);
    while began.elapsed() < time || under_way > 0 {
        under_way += send;
        let back = turn(send)?;
        under_way -= back;
        frames += back;
        let now = Instant::now();
        last = if back > 0 { now } else { last };
        ensure!(now - last < FRAME_TIMEOUT, "{under_way} frames were lost");
        send = if began.elapsed() < time { back } else { 0 };
    }
    Ok([frames as f64 / began.elapsed().as_secs_f64()])
}

fn io_runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

type Rings = (Producer<RingMap>, Consumer<RingMap>);

/// Pair of rings without a link.
struct BareRings {
    rings: Rings,
    reflector: Reflector,
}

/// Returns received frames.
fn reflect_ring((mut producer, mut consumer): Rings, gate: &Gate) -> Result<()> {
    let mut frame = [0; 2048];
    while gate.opens() {
        let mut reflected = 0;
        while reflected < 64
            && let Some(len) = consumer.pop(&mut frame)?
        {
            producer.push(&frame[..len])?;
            reflected += 1;
        }
        // The peer does not wait for notifications.
        let _ = producer.publish();
    }
    Ok(())
}

impl BareRings {
    fn start() -> Result<Self> {
        let (made, memory) = RingMap::create()?;
        let taken = RingMap::from_fd(memory)?;
        let rings = ring_pair(Arc::new(made), RingSide::Creator);
        let reflector =
            Reflector::start(move |gate| reflect_ring(ring_pair(Arc::new(taken), RingSide::Receiver), gate));
        Ok(Self { rings, reflector })
    }

    fn round_trips(&mut self, trips: usize) -> Result<[f64; 2]> {
        let _turn = self.reflector.turn();
        let (producer, consumer) = &mut self.rings;
        let mut frame = [0; 2048];
        let mut took = Vec::with_capacity(trips);
        for _ in 0..trips {
            let began = Instant::now();
            producer.push(&FRAME)?;
            let _ = producer.publish();
            while consumer.pop(&mut frame)?.is_none() {
                std::hint::spin_loop();
            }
            took.push(began.elapsed());
        }
        percentiles(took)
    }

    fn rate(&mut self, time: Duration) -> Result<[f64; 1]> {
        let _turn = self.reflector.turn();
        let (producer, consumer) = &mut self.rings;
        let mut frame = [0; 2048];
        rate(time, |send| {
            for _ in 0..send {
                producer.push(&FRAME)?;
            }
            let _ = producer.publish();
            let mut back = 0;
            while back < 64 && consumer.pop(&mut frame)?.is_some() {
                back += 1;
            }
            Ok(back)
        })
    }
}

/// Socket with its reflector, with one system call per datagram.
struct SocketPair {
    socket: UdpSocket,
    reflector: Reflector,
}

impl SocketPair {
    fn start() -> Result<Self> {
        let [socket, other] = [UdpSocket::bind(FREE)?, UdpSocket::bind(FREE)?];
        for (one, to) in [(&socket, &other), (&other, &socket)] {
            one.connect(to.local_addr()?)?;
            one.set_nonblocking(true)?;
        }
        let reflector = Reflector::start(move |gate| {
            let mut frame = [0; 2048];
            while gate.opens() {
                if let Some(len) = receive(&other, &mut frame)? {
                    other.send(&frame[..len])?;
                }
            }
            Ok(())
        });
        Ok(Self { socket, reflector })
    }

    fn round_trips(&mut self, trips: usize) -> Result<[f64; 2]> {
        let _turn = self.reflector.turn();
        let mut frame = [0; 2048];
        let mut took = Vec::with_capacity(trips);
        for _ in 0..trips {
            let began = Instant::now();
            self.socket.send(&FRAME)?;
            while receive(&self.socket, &mut frame)?.is_none() {
                ensure!(began.elapsed() < FRAME_TIMEOUT, "a frame was lost");
            }
            took.push(began.elapsed());
        }
        percentiles(took)
    }

    fn rate(&mut self, time: Duration) -> Result<[f64; 1]> {
        let _turn = self.reflector.turn();
        let mut frame = [0; 2048];
        rate(time, |send| {
            for _ in 0..send {
                self.socket.send(&FRAME)?;
            }
            Ok(usize::from(receive(&self.socket, &mut frame)?.is_some()))
        })
    }
}

/// Next datagram, if any.
fn receive(socket: &UdpSocket, frame: &mut [u8]) -> Result<Option<usize>> {
    match socket.recv(frame) {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(anyhow!(error)),
    }
}
