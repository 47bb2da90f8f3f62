//! Frames per second of rounds of 256 lanes through an element, beside a bare UDP reflector on the
//! same link: what the program costs.
//!
//! ```text
//! cargo run --release -p pathcall-element --example rate [seconds]
//! ```
//!
//! One load generator plays a worker and the server of a SyncAgtr application with a threshold of
//! one: each contribution is added and its sum sent on to the server, each result clears the row on
//! its way to the worker, which begins the row's next round. So every frame that enters the element
//! leaves it, as with the reflector, and every lane is written once per frame.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use pathcall_element::{Config, run};
use pathcall_endpoint::driver::link::Link;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{ElementApplication, EndpointEntry, InstallRequest, SetEndpointsRequest, SetGroupRequest};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, Kind, LINEAR_LANES, MapFlags, MapFrame, MapRepr, W_MAX};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Rounds in flight: one window.
const WINDOW: u32 = W_MAX;
const GAID: u32 = 1;
const EPOCH: u32 = 1;
const SERVER: u32 = 1;
const WORKER: u32 = 2;
/// Longest wait for a frame that must come: loopback loses none at this load.
const STUCK: Duration = Duration::from_secs(2);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |arg| arg.parse())?;
    let time = Duration::from_secs(seconds);
    let length = frame_len(MapFlags::LINEAR, LINEAR_LANES, 0);
    println!("{length}-byte frames of {LINEAR_LANES} lanes, {WINDOW} in flight, {seconds} s each");

    let reflected = generate(reflector()?, time, |_| ()).await?;
    println!("reflector {:>9.0} frames/s", reflected);

    let element = run(Config { data: FREE, control: FREE, ..Config::default() }).await?;
    let mut link = Link::bind(FREE)?;
    install(&element, link.local_addr()).await?;
    let added = generate_on(&mut link, element.data_addr(), time, next_round).await?;
    println!("element   {added:>9.0} frames/s   {:.0} % of the reflector", 100.0 * added / reflected);
    let counters = ElementClient::connect(format!("http://{}", element.control_addr()))
        .await?
        .counters(pathcall_proto::v1::CountersRequest {})
        .await?
        .into_inner();
    println!("{:?}", counters.element);
    element.shutdown().await;
    Ok(())
}

/// A thread that sends every frame back; it ends with the process.
fn reflector() -> Result<SocketAddr> {
    let (bound, binding) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let mut link = Link::bind(FREE).expect("a free port");
            bound.send(link.local_addr()).expect("main waits");
            while link.readable().await.is_ok() {
                link.exchange(|out, from, _, frame| out.queue(from, frame)).expect("a bound socket");
                link.flush();
            }
        });
    });
    Ok(binding.recv()?)
}

/// Keeps a window of frames going through `target`; the rate at which they come back.
async fn generate(target: SocketAddr, time: Duration, next: impl Fn(&mut [u8])) -> Result<f64> {
    generate_on(&mut Link::bind(FREE)?, target, time, next).await
}

async fn generate_on(link: &mut Link, target: SocketAddr, time: Duration, next: impl Fn(&mut [u8])) -> Result<f64> {
    for row in 0..WINDOW {
        link.queue(target, &contribution(row));
    }
    link.flush();
    let start = Instant::now();
    let mut frames = 0;
    while start.elapsed() < time {
        tokio::time::timeout(STUCK, link.readable()).await??;
        frames += link.exchange(|out, _, _, frame| {
            next(frame);
            out.queue(target, frame);
        })?;
        link.flush();
    }
    Ok(frames as f64 / start.elapsed().as_secs_f64())
}

/// The worker's first frame of a row.
fn contribution(row: u32) -> Vec<u8> {
    let base = BaseRepr {
        gaid: GAID,
        epoch: EPOCH,
        src: WORKER,
        src_incarnation: WORKER,
        dst: SERVER,
        dst_incarnation: SERVER,
        slot: 0,
        seq: row + 1,
        round: 1,
        ..BaseRepr::new(Kind::MapData)
    };
    let flags = MapFlags::LINEAR | MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND;
    let map = MapRepr { flags, lanes: LINEAR_LANES as u16, index: row, threshold: 1, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, LINEAR_LANES, 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    for word in 0..LINEAR_LANES / 32 {
        frame.set_bitmap(word, u32::MAX);
    }
    for (i, lane) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).enumerate() {
        lane.copy_from_slice(&(i as u32).to_be_bytes());
    }
    bytes
}

/// The server answers a sum with the round's result, the worker a result with its next contribution.
fn next_round(frame: &mut [u8]) {
    let mut frame = MapFrame::new_checked(frame).expect("a frame from the element");
    let (row, round) = (frame.map().index(), frame.base().round());
    match frame.kind() {
        Kind::MapData => {
            assert!(frame.map().has(MapFlags::REACHED), "a sum");
            let mut base = frame.base_mut();
            base.set_kind(Kind::MapResult as u8);
            base.set_flags(Flags::FROM_SERVER | Flags::MCAST);
            base.set_src(SERVER);
            base.set_src_incarnation(SERVER);
            base.set_dst(0);
            base.set_dst_incarnation(0);
            frame.map_mut().set_flags(MapFlags::LINEAR | MapFlags::CLEAR | MapFlags::ROUND);
        }
        Kind::MapResult => {
            let mut base = frame.base_mut();
            base.set_kind(Kind::MapData as u8);
            base.set_flags(0);
            base.set_src(WORKER);
            base.set_src_incarnation(WORKER);
            base.set_dst(SERVER);
            base.set_dst_incarnation(SERVER);
            base.set_seq(row + 1 + round * WINDOW);
            base.set_round(round + 1);
            frame.map_mut().set_flags(MapFlags::LINEAR | MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND);
        }
        other => panic!("{other:?} from the element"),
    }
}

/// Makes worker and server known to the element, both at one address.
async fn install(element: &pathcall_element::Handle, generator: SocketAddr) -> Result<()> {
    let boot_id = element.boot_id();
    let mut control = ElementClient::connect(format!("http://{}", element.control_addr())).await?;
    let width = LINEAR_LANES as u32;
    let application =
        ElementApplication { gaid: GAID, epoch: EPOCH, owner: SERVER, row_base: 0, rows: WINDOW, lane_base: 0, width };
    control.install(InstallRequest { boot_id, application: Some(application) }).await?;
    let endpoints = [(SERVER, 0), (WORKER, 1)].map(|(endpoint, slots)| EndpointEntry {
        endpoint,
        incarnation: endpoint,
        data_address: generator.to_string(),
        gaid: GAID,
        slot_base: 0,
        slots,
    });
    control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: endpoints.into() }).await?;
    control.set_group(SetGroupRequest { boot_id, gaid: GAID, endpoints: vec![WORKER] }).await?;
    Ok(())
}
