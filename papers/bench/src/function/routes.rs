//! Routes of the figures: a public routing table, or generated ones with the same lengths.
//!
//! The public table has 901,899 IPv4 prefixes, from the Go module `github.com/gaissmai/bart` v0.30.0, fetched by `go
//! mod download`. If the module is unavailable, as many prefixes are generated, and the figure reports it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::harness::Bench;

const MODULE: &str = "github.com/gaissmai/bart@v0.30.0";
const DATA: &str = "internal/tests/testdata/prefixes.txt.gz";
/// IPv4 prefixes in the module.
const PREFIXES: usize = 901_899;
/// Number of prefixes of each length, from 8 on, for generated tables.
const LENGTHS: [usize; 25] = [
    16, 13, 38, 103, 299, 581, 1203, 2100, 13490, 8235, 13798, 24870, 42611, 50750, 108_623, 96510, 537_698, 20, 3, 11,
    18, 17, 3, 3, 886,
];

/// Address and length.
pub(crate) type Prefix = (u32, u8);

/// All prefixes.
pub(crate) fn table(bench: &Bench) -> Vec<Prefix> {
    real().unwrap_or_else(|error| {
        bench.print_note(&format!("routes are generated: {error:#}"));
        made_up()
    })
}

/// IPv4 prefixes of the module.
fn real() -> Result<Vec<Prefix>> {
    let output = Command::new("go").args(["mod", "download", "-json", MODULE]).output().context("cannot run `go`")?;
    ensure!(output.status.success(), "`go mod download {MODULE}` failed");
    let about: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let file = Path::new(about["Dir"].as_str().context("the module has no folder")?).join(DATA);
    let output = Command::new("gzip").arg("-dc").arg(&file).output().context("cannot run `gzip`")?;
    ensure!(output.status.success(), "{} can't be unpacked", file.display());
    let parse = |line: &str| -> Result<Prefix> {
        let (address, len) = line.split_once('/').context("a line without a length")?;
        Ok((address.parse::<std::net::Ipv4Addr>()?.to_bits(), len.parse()?))
    };
    let text = String::from_utf8(output.stdout)?;
    let prefixes = text.lines().filter(|line| line.contains('.')).map(parse).collect::<Result<Vec<_>>>()?;
    ensure!(prefixes.len() == PREFIXES, "{} prefixes, not {PREFIXES}", prefixes.len());
    Ok(prefixes)
}

fn made_up() -> Vec<Prefix> {
    let mut random = XorShift(1);
    let mut prefixes = std::collections::BTreeSet::new();
    for (len, count) in (8u8..).zip(LENGTHS) {
        let before = prefixes.len();
        while prefixes.len() < before + count {
            prefixes.insert((random.next() & u32::MAX << (32 - len), len));
        }
    }
    prefixes.into_iter().collect()
}

/// Random addresses, uniform over the prefixes, and random within each.
pub(crate) fn addresses(prefixes: &[Prefix], count: usize) -> Vec<u32> {
    let mut random = XorShift(2);
    let one = |_| {
        let (value, len) = prefixes[random.next() as usize % prefixes.len()];
        value | random.next() & u32::MAX.checked_shr(len.into()).unwrap_or(0)
    };
    (0..count).map(one).collect()
}

/// Marsaglia's xorshift generator, with deterministic results.
pub(crate) struct XorShift(pub(crate) u64);

impl XorShift {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// Zipf distribution of numbers: 0 is the most frequent.
pub(crate) struct Zipf {
    /// Cumulative share of each number.
    sums: Vec<f64>,
}

impl Zipf {
    /// Distribution over `0..count` with this exponent.
    pub(crate) fn new(count: usize, alpha: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = Vec::with_capacity(count);
        for rank in 1..=count {
            sum += (rank as f64).powf(-alpha);
            sums.push(sum);
        }
        sums.iter_mut().for_each(|share| *share /= sum);
        Self { sums }
    }

    pub(crate) fn draw(&self, random: &mut XorShift) -> usize {
        let drawn = f64::from(random.next()) / (f64::from(u32::MAX) + 1.0);
        self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len() - 1)
    }
}
