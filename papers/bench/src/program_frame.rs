//! `program-frame`: nanoseconds of the switch program per frame, compared with the minimum work on a frame: check and
//! copy. Frames with tokens, compared with frames without; frames of calls, compared with a forwarded frame; and, with
//! feature `xdp`, the program in the kernel.

mod calls;

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use pathcall_program::{FrameAction, Size, SwitchProgram};
use pathcall_wire::{MAX_FRAME, MapFrame, TokenKey};

use calls::{Calls, Treatment};

use crate::harness::{Bench, Better, Figure, Kind, Metric};
use crate::traffic::{ENDPOINTS, FrameShape, GAID, WINDOW, WORKER, with_token, without_token};

pub(crate) const FIGURE: Figure = Figure {
    name: "program-frame",
    about: "the switch program alone, in memory: time per frame",
    kind: Kind::Measured,
    run,
};

/// Windows of frames per turn.
const WINDOWS: u64 = 2_000;
const WINDOWS_QUICK: u64 = 20;
/// Key for frames with tokens; any value.
const KEY: TokenKey = TokenKey::new([1, 2]);

fn run(bench: &mut Bench) -> Result<()> {
    let windows = bench.size(WINDOWS, WINDOWS_QUICK);
    for shape in FrameShape::ALL {
        let (mut switch, mut bare) = (Switch::new(shape, None)?, CheckAndCopy::new(shape));
        let metric = Metric::new(shape.name(), "check and copy", "ns/frame", Better::Lower).peer_is_limit();
        bench.compare([metric], || switch.turn(windows), || bare.turn(windows))?;
    }
    for shape in FrameShape::ALL {
        let (mut signed, mut plain) = (Switch::new(shape, Some(KEY))?, Switch::new(shape, None)?);
        (signed.delivers, plain.delivers) = (true, true);
        let case = format!("{} and a token", shape.name());
        let metric = Metric::new(case, "without tokens", "ns/frame", Better::Lower);
        bench.compare([metric], || signed.turn(windows), || plain.turn(windows))?;
    }
    for treatment in Treatment::CALLS {
        let (mut calls, mut passed) = (Calls::new(treatment)?, Calls::new(Treatment::Forwarded)?);
        let metric = Metric::new(treatment.name(), Treatment::Forwarded.name(), "ns/frame", Better::Lower);
        bench.compare([metric], || calls.turn(windows), || passed.turn(windows))?;
    }
    #[cfg(feature = "xdp")]
    for shape in FrameShape::ALL {
        let (mut kernel, mut reference) = (kernel::Switch::new(shape)?, Switch::new(shape, None)?);
        let case = format!("{}, in the kernel", shape.name());
        let metric = Metric::new(case, "the reference in user space", "ns/frame", Better::Lower);
        bench.compare([metric], || kernel.turn(windows), || reference.turn(windows))?;
    }
    Ok(())
}

/// Switch program in a loop with hosts that answer immediately.
struct Switch {
    shape: FrameShape,
    program: SwitchProgram,
    frames: Vec<Vec<u8>>,
    key: Option<TokenKey>,
    /// True if multicast frames are copied per receiver, which is where they are signed.
    delivers: bool,
}

impl Switch {
    fn new(shape: FrameShape, key: Option<TokenKey>) -> Result<Self> {
        let mut program = SwitchProgram::new(Size::default());
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
                    FrameAction::Drop(_) => bail!("a frame was dropped: {verdict:?}"),
                    FrameAction::Multicast(gaid) if self.delivers => {
                        self.program.tables().copies(gaid, frame, |_, copy| _ = black_box(copy));
                    }
                    FrameAction::Multicast(_) | FrameAction::Forward(_) | FrameAction::Clone(_) => {}
                }
            }
            took_ns += began.elapsed().as_nanos();
            // Restores the frames: the hosts' work is not measured.
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

/// Minimum work: checks each frame and copies it.
struct CheckAndCopy {
    frames: Vec<Vec<u8>>,
    out: [u8; MAX_FRAME],
}

impl CheckAndCopy {
    fn new(shape: FrameShape) -> Self {
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

/// Program in the kernel, by the kernel's clock: with checksums of the packet, without driver and routing.
#[cfg(feature = "xdp")]
mod kernel {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use anyhow::{Result, bail};
    use pathcall_program::{CloneSize, Size};
    use pathcall_xdp::{Config, KernelSwitch, Packet, RunResult};

    use crate::traffic::{ENDPOINTS, FrameShape, WINDOW};

    const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
    const SENDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 4000);

    /// Kernel program in a loop with hosts that answer immediately.
    pub(super) struct Switch {
        shape: FrameShape,
        kernel: KernelSwitch,
        frames: Vec<Vec<u8>>,
        packet: Vec<u8>,
        out: Vec<u8>,
    }

    impl Switch {
        pub(super) fn new(shape: FrameShape) -> Result<Self> {
            let (data_port, slow_port) = (ELEMENT.port(), ELEMENT.port() + 1);
            let (size, clones) = (Size::default(), CloneSize::default());
            let mut kernel =
                KernelSwitch::load(&Config { size, clones, data_port, slow_port, routed: false, inlined: false })?;
            kernel.set_element_address(*ELEMENT.ip())?;
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
                        RunResult::Out(_, left) | RunResult::Slow(_, left) => *frame = left,
                        RunResult::Passed | RunResult::Dropped => bail!("a frame did not leave: {ran:?}"),
                    }
                    self.shape.next(frame);
                }
            }
            Ok([took_ns as f64 / (windows * u64::from(WINDOW)) as f64])
        }
    }
}
