//! Functions written by hand in C for a processor (`bench/peers/nf.c`), as a peer: SNAT, routes by DIR-24-8,
//! forwarding. The host's C compiler compiles them; a run is a process of its own, which reports its own processor
//! time.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("../../peers/nf.c");
/// Packets of a run, at least.
const PACKETS_MIN: usize = 1 << 22;

/// Compiled program.
pub(crate) struct NativeProgram {
    /// Directory of the files; removed on drop.
    directory: PathBuf,
}

/// Packets of a function, as files of the program.
pub(crate) struct NativeLoad<'a> {
    program: &'a NativeProgram,
    function: &'static str,
    rounds: usize,
}

impl NativeProgram {
    /// Compiles the program.
    ///
    /// # Errors
    /// Returns an error if there is no C compiler.
    pub(crate) fn compile() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("pathcall-bench-native-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let program = Self { directory };
        let source = program.file("nf.c");
        std::fs::write(&source, SOURCE)?;
        let mut command = Command::new("cc");
        command.args(["-O3", "-march=native", "-o"]).arg(program.file("nf")).arg(&source);
        let output = command.output().context("cannot run cc (Debian: gcc)")?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Ok(program)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Prepares packets: `table` has the entries of the function, `trace` the frame of each packet. The frames that
    /// leave the program have to be `expected`.
    ///
    /// # Errors
    /// Returns an error if a frame leaves otherwise.
    pub(crate) fn load(
        &self,
        function: &'static str,
        table: &[[u32; 4]],
        frames: &[Vec<u8>],
        trace: &[usize],
        expected: &[Vec<u8>],
    ) -> Result<NativeLoad<'_>> {
        let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        std::fs::write(self.file("table"), words(&mut table.iter().flatten().copied()))?;
        std::fs::write(self.file("trace"), words(&mut trace.iter().map(|at| *at as u32)))?;
        let frame = |frame: &Vec<u8>| [&(frame.len() as u32).to_le_bytes()[..], frame].concat();
        std::fs::write(self.file("frames"), frames.iter().flat_map(frame).collect::<Vec<u8>>())?;
        let load = NativeLoad { program: self, function, rounds: PACKETS_MIN.div_ceil(trace.len()) };
        load.run(1)?;
        let left = std::fs::read(self.file("left"))?;
        let expected: Vec<u8> = expected.iter().flat_map(frame).collect();
        ensure!(left == expected, "frames leave the native {function} otherwise than ours");
        Ok(load)
    }
}

impl NativeLoad<'_> {
    /// Nanoseconds of the processor per packet.
    pub(crate) fn packet_ns(&self) -> Result<f64> {
        self.run(self.rounds)
    }

    fn run(&self, rounds: usize) -> Result<f64> {
        let file = |name: &str| self.program.file(name);
        let files = ["table", "frames", "trace", "left"].map(file);
        let mut command = Command::new(file("nf"));
        let output = command.arg(self.function).args(files).arg(rounds.to_string()).output()?;
        ensure!(output.status.success(), "nf: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout)?.trim().parse().context("nanoseconds by nf")
    }
}

impl Drop for NativeProgram {
    fn drop(&mut self) {
        // Remaining files lie in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
