//! `program-frame`: nanoseconds of the switch program per frame, beside the least that anything can
//! do with a frame: check it and copy it.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use pathcall_program::{Action, Program, Size};
use pathcall_wire::{MAX_FRAME, MapFrame};

use crate::harness::{Bench, Better, Figure, Metric};
use crate::traffic::{ENDPOINTS, GAID, Shape, WINDOW, WORKER};

pub(crate) const FIGURE: Figure =
    Figure { name: "program-frame", about: "the switch program alone, in memory: time per frame", run };

/// Windows of frames in one turn.
const WINDOWS: u64 = 2_000;
const WINDOWS_QUICK: u64 = 20;

fn run(bench: &mut Bench) -> Result<()> {
    let windows = bench.size(WINDOWS, WINDOWS_QUICK);
    for shape in Shape::ALL {
        let (mut switch, mut bare) = (Switch::new(shape)?, Bare::new(shape));
        let metric = Metric::new(shape.name(), "check and copy", "ns/frame", Better::Lower).peer_is_limit();
        bench.compare([metric], || switch.turn(windows), || bare.turn(windows))?;
    }
    Ok(())
}

/// The program in a loop with hosts that answer at once.
struct Switch {
    shape: Shape,
    program: Program,
    frames: Vec<Vec<u8>>,
}

impl Switch {
    fn new(shape: Shape) -> Result<Self> {
        let mut program = Program::new(Size::default());
        let tables = program.tables_mut();
        tables.install(shape.application())?;
        for endpoint in ENDPOINTS {
            tables.set_endpoint(endpoint)?;
        }
        tables.set_group(GAID, &[WORKER])?;
        Ok(Self { shape, program, frames: (0..WINDOW).map(|row| shape.first(row)).collect() })
    }

    fn turn(&mut self, windows: u64) -> Result<[f64; 1]> {
        let mut took_ns = 0;
        for _ in 0..windows {
            let began = Instant::now();
            for frame in &mut self.frames {
                let verdict = self.program.process(pathcall_wire::Instant(1), black_box(frame), false);
                ensure!(!matches!(verdict.action, Action::Drop(_)), "a frame was dropped: {verdict:?}");
            }
            took_ns += began.elapsed().as_nanos();
            // What the hosts do is not the program's.
            self.frames.iter_mut().for_each(|frame| self.shape.next(frame));
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
