//! `program-frame`: nanoseconds of the switch program per frame, beside the least that anything can
//! do with a frame: check it and copy it. And with tokens on the frames, beside itself without; frames of calls
//! beside one that is passed on; and, where it is built in (feature `xdp`), the program in the kernel beside it.

mod calls;

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use pathcall_program::{Action, Program, Size};
use pathcall_wire::{MAX_FRAME, MapFrame, TokenKey};

use calls::{Calls, Passing};

use crate::harness::{Bench, Better, Figure, Metric};
use crate::traffic::{ENDPOINTS, GAID, Shape, WINDOW, WORKER, with_token, without_token};

pub(crate) const FIGURE: Figure =
    Figure { name: "program-frame", about: "the switch program alone, in memory: time per frame", run };

/// Windows of frames in one turn.
const WINDOWS: u64 = 2_000;
const WINDOWS_QUICK: u64 = 20;
/// Signs frames where they carry tokens; any will do.
const KEY: TokenKey = TokenKey::new([1, 2]);

fn run(bench: &mut Bench) -> Result<()> {
    let windows = bench.size(WINDOWS, WINDOWS_QUICK);
    for shape in Shape::ALL {
        let (mut switch, mut bare) = (Switch::new(shape, None)?, Bare::new(shape));
        let metric = Metric::new(shape.name(), "check and copy", "ns/frame", Better::Lower).peer_is_limit();
        bench.compare([metric], || switch.turn(windows), || bare.turn(windows))?;
    }
    for shape in Shape::ALL {
        let (mut signed, mut plain) = (Switch::new(shape, Some(KEY))?, Switch::new(shape, None)?);
        (signed.delivers, plain.delivers) = (true, true);
        let case = format!("{} and a token", shape.name());
        let metric = Metric::new(case, "without tokens", "ns/frame", Better::Lower);
        bench.compare([metric], || signed.turn(windows), || plain.turn(windows))?;
    }
    for passing in Passing::CALLS {
        let (mut calls, mut passed) = (Calls::new(passing)?, Calls::new(Passing::Crossing)?);
        let metric = Metric::new(passing.name(), Passing::Crossing.name(), "ns/frame", Better::Lower);
        bench.compare([metric], || calls.turn(windows), || passed.turn(windows))?;
    }
    #[cfg(feature = "xdp")]
    for shape in Shape::ALL {
        let (mut kernel, mut reference) = (kernel::Switch::new(shape)?, Switch::new(shape, None)?);
        let case = format!("{}, in the kernel", shape.name());
        let metric = Metric::new(case, "the reference in user space", "ns/frame", Better::Lower);
        bench.compare([metric], || kernel.turn(windows), || reference.turn(windows))?;
    }
    Ok(())
}

/// The program in a loop with hosts that answer at once.
struct Switch {
    shape: Shape,
    program: Program,
    frames: Vec<Vec<u8>>,
    key: Option<TokenKey>,
    /// Whether a multicast is copied for whom it is for, which is where it is signed.
    delivers: bool,
}

impl Switch {
    fn new(shape: Shape, key: Option<TokenKey>) -> Result<Self> {
        let mut program = Program::new(Size::default());
        let tables = program.tables_mut();
        tables.install(shape.application())?;
        tables.authenticate(GAID, key)?;
        for endpoint in ENDPOINTS {
            tables.set_endpoint(endpoint)?;
        }
        tables.set_group(GAID, &[WORKER])?;
        let frames = (0..WINDOW).map(|row| with_token(key, shape.first(row))).collect();
        Ok(Self { shape, program, frames, key, delivers: false })
    }

    fn turn(&mut self, windows: u64) -> Result<[f64; 1]> {
        let mut took_ns = 0;
        for _ in 0..windows {
            let began = Instant::now();
            for frame in &mut self.frames {
                let verdict = self.program.process(pathcall_wire::Instant(1), black_box(frame), false);
                match verdict.action {
                    Action::Drop(_) => bail!("a frame was dropped: {verdict:?}"),
                    Action::Multicast(gaid) if self.delivers => {
                        self.program.tables().copies(gaid, frame, |_, copy| _ = black_box(copy));
                    }
                    Action::Multicast(_) | Action::Forward(_) | Action::Clone(_) => {}
                }
            }
            took_ns += began.elapsed().as_nanos();
            // What the hosts do is not the program's.
            for frame in &mut self.frames {
                ensure!(self.key.is_none_or(|key| key.has_signed(frame)), "a frame left without its token");
                let mut plain = without_token(std::mem::take(frame));
                self.shape.next(&mut plain);
                *frame = with_token(self.key, plain);
            }
        }
        Ok([took_ns as f64 / (windows * u64::from(WINDOW)) as f64])
    }
}

/// Checks each frame and copies it, and nothing more.
struct Bare {
    frames: Vec<Vec<u8>>,
    out: [u8; MAX_FRAME],
}

impl Bare {
    fn new(shape: Shape) -> Self {
        Self { frames: (0..WINDOW).map(|row| shape.first(row)).collect(), out: [0; MAX_FRAME] }
    }

    fn turn(&mut self, windows: u64) -> Result<[f64; 1]> {
        let began = Instant::now();
        for _ in 0..windows {
            for frame in &self.frames {
                let checked = MapFrame::new_checked(&black_box(frame)[..])?;
                black_box(checked.kind());
                self.out[..frame.len()].copy_from_slice(frame);
                black_box(&self.out);
            }
        }
        Ok([began.elapsed().as_nanos() as f64 / (windows * u64::from(WINDOW)) as f64])
    }
}

/// The program in the kernel, by the kernel's clock: with the packet's checksums, without driver and route.
#[cfg(feature = "xdp")]
mod kernel {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use anyhow::{Result, bail};
    use pathcall_program::{CloneSize, Size};
    use pathcall_xdp::{Config, Kernel, Packet, Ran};

    use crate::traffic::{ENDPOINTS, Shape, WINDOW};

    const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
    const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);

    /// In a loop with hosts that answer at once.
    pub(super) struct Switch {
        shape: Shape,
        kernel: Kernel,
        frames: Vec<Vec<u8>>,
        packet: Vec<u8>,
        out: Vec<u8>,
    }

    impl Switch {
        pub(super) fn new(shape: Shape) -> Result<Self> {
            let (data_port, slow_port) = (ELEMENT.port(), ELEMENT.port() + 1);
            let (size, clones) = (Size::default(), CloneSize::default());
            let mut kernel =
                Kernel::load(&Config { size, clones, data_port, slow_port, routed: false, inlined: false })?;
            kernel.own(*ELEMENT.ip())?;
            kernel.install(&shape.application())?;
            for endpoint in ENDPOINTS {
                kernel.set_endpoint(&endpoint, SENDER)?;
            }
            let frames = (0..WINDOW).map(|row| shape.first(row)).collect();
            Ok(Self { shape, kernel, frames, packet: Vec::new(), out: Vec::new() })
        }

        pub(super) fn turn(&mut self, windows: u64) -> Result<[f64; 1]> {
            let mut took_ns = 0;
            for _ in 0..windows {
                for frame in &mut self.frames {
                    Packet { from: SENDER, to: ELEMENT, congested: false }.emit(frame, &mut self.packet);
                    let (ran, took) = self.kernel.run_timed(&self.packet, &mut self.out)?;
                    took_ns += took.as_nanos();
                    match ran {
                        Ran::Out(_, left) | Ran::Slow(_, left) => *frame = left,
                        Ran::Passed | Ran::Dropped => bail!("a frame did not leave: {ran:?}"),
                    }
                    self.shape.next(frame);
                }
            }
            Ok([took_ns as f64 / (windows * u64::from(WINDOW)) as f64])
        }
    }
}
