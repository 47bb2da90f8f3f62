//! What all applications share: what they can be told and how their servers start ([`way`]), on
//! which hosts their parties are ([`place`]), and what they say of a run, one line of JSON for `pathcall demo`,
//! or a few for a person ([`Report`]). Those whose calls go over several servers have [`hops`] instead, and
//! servers and channels of [`nodes`].

pub mod hops;
pub mod nodes;
pub mod place;
pub mod way;

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

/// How an application ends; what went wrong is said in one line.
#[must_use]
pub fn exit(application: &str, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{application}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A finished run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The application.
    pub app: &'static str,
    /// "pathcall" or "plain".
    pub mode: &'static str,
    /// Calls made.
    pub calls: usize,
    /// Wall time of the calls, in seconds.
    pub seconds: f64,
    /// Calls a second.
    pub calls_per_s: f64,
    /// Median and 99th percentile of a call, in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Bytes of typed fields that reached the server, as they travelled.
    pub server_bytes: u64,
    /// Share of the values that were worked on in an element, 0 to 1; none on the plain path.
    pub element_share: Option<f64>,
    /// Hash of the result: equal results, equal digests.
    pub digest: String,
}

impl Report {
    /// A report of calls that took `latencies`, in any order.
    #[must_use]
    pub fn new(app: &'static str, plain: bool, mut latencies: Vec<Duration>, took: Duration) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len().saturating_sub(1) as f64 * share).round() as usize;
            latencies.get(index).map_or(0, |d| d.as_micros() as u64)
        };
        let (calls, seconds) = (latencies.len(), took.as_secs_f64());
        Self {
            app,
            mode: if plain { "plain" } else { "pathcall" },
            calls,
            seconds,
            calls_per_s: calls as f64 / seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
            server_bytes: 0,
            element_share: None,
            digest: String::new(),
        }
    }

    /// Prints it: JSON in one line, or for a person.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain fields"));
            return;
        }
        let share = self.element_share.map_or("-".into(), |share| format!("{:.1} %", share * 100.0));
        println!("{} ({}): {} calls in {:.2} s", self.app, self.mode, self.calls, self.seconds);
        println!("  calls/s {:.0}, p50 {} us, p99 {} us", self.calls_per_s, self.p50_us, self.p99_us);
        println!("  bytes at the server {}, in the element {share}, result {}", self.server_bytes, self.digest);
    }
}

/// FNV-1a of the parts of a result and of where each ends.
#[must_use]
pub fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in (part.len() as u64).to_be_bytes().iter().chain(part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}
