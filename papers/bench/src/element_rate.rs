//! `element-rate`: frames per second through an element, compared with a bare UDP reflector on the same link: same
//! frames, same batching, same generator. The difference is the switch program.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pathcall_driver::link::{Link, PollMode};
use pathcall_element::Config;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    ElementApplication, EndpointEntry, InstallApplicationRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use tokio::runtime::Runtime;

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::traffic::{ENDPOINTS, FrameShape, GAID, WINDOW, WORKER};

pub(crate) const FIGURE: Figure = Figure {
    name: "element-rate",
    about: "frames through an element on a UDP link, by one generator",
    kind: Kind::Measured,
    run,
};

const FREE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Timeout for a frame that must arrive: the loopback loses none at this load.
const FRAME_TIMEOUT: Duration = Duration::from_secs(2);
/// Length of one turn.
const TIME: Duration = Duration::from_millis(700);
const TIME_QUICK: Duration = Duration::from_millis(50);

fn run(bench: &mut Bench) -> Result<()> {
    let time = bench.size(TIME, TIME_QUICK);
    // The generator's own thread polls its socket.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reflector = reflector()?;
    for (shape, expected) in FrameShape::ALL.into_iter().zip([0.5, 0.3]) {
        let element = runtime.block_on(pathcall_element::run(Config::default().data(FREE).control(FREE)))?;
        let mut through = Generator::new(&runtime, shape, element.data_addr())?;
        runtime.block_on(install(&element, shape, through.link.local_addr()))?;
        let mut bare = Generator::new(&runtime, shape, reflector)?;
        let metric =
            Metric::new(shape.name(), "UDP reflector", "frames/s", Better::Higher).peer_is_limit().expect(expected);
        bench.compare(
            [metric],
            || runtime.block_on(through.turn(time, |frame| shape.next(frame))),
            || runtime.block_on(bare.turn(time, |_| ())),
        )?;
        runtime.block_on(element.shutdown());
    }
    Ok(())
}

/// Starts a thread that returns every frame; it ends with the process.
pub(crate) fn reflector() -> Result<SocketAddr> {
    let (bound, binding) = std::sync::mpsc::channel();
    let work = move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let mut link = Link::bind(FREE)?;
            bound.send(link.local_addr())?;
            loop {
                link.readable().await?;
                link.exchange(PollMode::IfReady, |out, from, _, frame| out.queue(from, frame))?;
                link.flush();
            }
        })
    };
    std::thread::spawn(move || {
        if let Err(error) = work() {
            eprintln!("the reflector ended: {error}");
        }
    });
    binding.recv().context("the reflector did not start")
}

/// Generator that keeps a window of frames in flight through `target`.
pub(crate) struct Generator {
    pub(crate) link: Link,
    target: SocketAddr,
    /// Frames to send at the start of a turn: the first frames, or the last ones received.
    ready: Vec<Vec<u8>>,
}

impl Generator {
    pub(crate) fn new(runtime: &Runtime, shape: FrameShape, target: SocketAddr) -> Result<Self> {
        let _inside = runtime.enter();
        Ok(Self { link: Link::bind(FREE)?, target, ready: (0..WINDOW).map(|row| shape.first(row)).collect() })
    }

    /// Rate of returning frames; `next` turns each frame into its successor.
    pub(crate) async fn turn(&mut self, time: Duration, next: impl Fn(&mut [u8])) -> Result<[f64; 1]> {
        let Self { link, target, ready } = self;
        ready.drain(..).for_each(|frame| link.queue(*target, &frame));
        link.flush();
        let began = Instant::now();
        let mut frames = 0;
        while began.elapsed() < time {
            tokio::time::timeout(FRAME_TIMEOUT, link.readable()).await.context("frames were lost")??;
            frames += link.exchange(PollMode::IfReady, |out, _, _, frame| {
                next(frame);
                out.queue(*target, frame);
            })?;
            link.flush();
        }
        let took = began.elapsed();
        // The window rests until the next turn.
        while ready.len() < WINDOW as usize {
            tokio::time::timeout(FRAME_TIMEOUT, link.readable()).await.context("frames were lost")??;
            link.recv(|_, _, frame| {
                next(frame);
                ready.push(frame.to_vec());
            })?;
        }
        Ok([frames as f64 / took.as_secs_f64()])
    }
}

/// Registers the hosts in the element, all at one address.
async fn install(element: &pathcall_element::Handle, shape: FrameShape, generator: SocketAddr) -> Result<()> {
    let boot_id = element.boot_id();
    let mut control = ElementClient::connect(format!("http://{}", element.control_addr())).await?;
    let pathcall_program::InstalledApplication { gaid, epoch, owner, row_base, rows, lane_base, width } =
        shape.application();
    let token_key = None;
    let application = ElementApplication { gaid, epoch, owner, row_base, rows, lane_base, width, token_key };
    control.install_application(InstallApplicationRequest { boot_id, application: Some(application) }).await?;
    let endpoints = ENDPOINTS.map(|entry| EndpointEntry {
        endpoint: entry.endpoint,
        incarnation: entry.incarnation,
        data_address: generator.to_string(),
        gaid: entry.gaid,
        slot_base: entry.slot_base,
        slots: entry.slots,
    });
    control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: endpoints.into() }).await?;
    control.set_multicast_group(SetMulticastGroupRequest { boot_id, gaid: GAID, endpoints: vec![WORKER] }).await?;
    Ok(())
}
