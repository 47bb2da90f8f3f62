//! Framework of the applications: options and server ([`call_path`]), hosts of the parties ([`party_hosts`]), and the
//! report, one line of JSON for `pathcall demo` or text ([`Report`]). Applications with calls over several servers use
//! [`hops`] instead, and servers and channels of [`nodes`].

pub mod call_path;
pub mod hops;
pub mod nodes;
pub mod party_hosts;

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

/// Exit code of an application; prints an error in one line.
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

/// Report of a finished run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the application.
    pub app: &'static str,
    /// Path: "pathcall" or "plain".
    pub mode: &'static str,
    /// Number of calls.
    pub calls: usize,
    /// Total time of the calls in seconds.
    pub seconds: f64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Median and 99th percentile of a call in microseconds.
    pub p50_us: u64,
    /// See `p50_us`.
    pub p99_us: u64,
    /// Bytes of typed fields that reached the server, as transmitted.
    pub server_bytes: u64,
    /// Share of values that an element processed, 0 to 1; `None` for plain gRPC.
    pub element_share: Option<f64>,
    /// Hash of the results, equal for equal results.
    pub digest: String,
}

impl Report {
    /// Creates a report of calls with these latencies, in any order.
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

    /// Prints the report: JSON in one line, or text.
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

/// FNV-1a of the parts of a result and of their boundaries.
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
