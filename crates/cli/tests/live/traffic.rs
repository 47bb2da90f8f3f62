//! Traffic of real programs from inside to outside, and the outcomes of its connections.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pathcall_testbed::TestbedNode;
use serde_json::Value;

use super::testbed::{BLOCKS, LiveTestbed, address};
use pathcall_test_support::process::until_within;

pub const HTTP: u16 = 8000;
pub const DNS: u16 = 53;
/// One port for each long connection; the last is UDP.
pub const IPERF: [u16; 4] = [5201, 5202, 5203, 5204];
/// Address that dnsmasq returns for the name.
pub const ANSWER: &str = "203.0.113.9";
/// Fetched page.
const PAGE: &[u8] = include_bytes!("../../../../functions/snat.p4c");
/// Timeout of a page or a name where all must succeed: longer than the machine stands still.
pub const PATIENT_S: u32 = 60;
/// Timeout where some are lost for good and later ones must succeed.
pub const HASTY_S: u32 = 5;
/// Longest wait for several of them in sequence.
const SHORT_MAX: Duration = Duration::from_secs(10 * PATIENT_S as u64);
/// Duration of a long connection: enough for a change in its middle.
const SECONDS: &str = "4";

/// Outcomes of connections.
#[derive(Debug, Default)]
pub struct TrafficCounts {
    pub fetched: usize,
    pub resolved: usize,
    pub long_tcp: usize,
    pub long_udp: usize,
    /// Sums over long connections.
    pub bytes: u64,
    pub resent: u64,
    pub datagrams: u64,
    pub datagrams_lost: u64,
    /// Errors of broken connections.
    pub broken: Vec<String>,
}

impl TrafficCounts {
    /// Number of successful connections of all kinds.
    pub fn connections(&self) -> usize {
        self.fetched + self.resolved + self.long_tcp + self.long_udp
    }
}

impl fmt::Display for TrafficCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} pages fetched (curl), {} names resolved (dig)", self.fetched, self.resolved)?;
        writeln!(
            f,
            "{} TCP streams (iperf3): {} MB, {} segments sent again; {} UDP streams: {} of {} datagrams lost",
            self.long_tcp,
            self.bytes / 1_000_000,
            self.resent,
            self.long_udp,
            self.datagrams_lost,
            self.datagrams
        )?;
        write!(f, "{} connections broken", self.broken.len())
    }
}

/// Stop flag of the threads, also set if a test fails, so that they do not outlive their testbed.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Programs that make connections until dropped.
pub struct Traffic {
    inside: TestbedNode,
    outside: String,
    stop: Stop,
    /// Block of source addresses.
    block: Arc<AtomicUsize>,
    fetched: Arc<AtomicUsize>,
    resolved: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
    counted: TrafficCounts,
}

impl Traffic {
    /// Starts fetching pages and resolving names, each with this timeout in seconds.
    pub fn start(testbed: &LiveTestbed, patience_s: u32) -> Self {
        let (inside, outside) = (testbed.inside.clone(), testbed.outside.address().to_string());
        let (stop, block) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
        let begin = |one: fn(&TestbedNode, &str, &str, usize, u32) -> Result<(), String>| {
            let passed = Arc::new(AtomicUsize::new(0));
            let (inside, outside, stop, count) =
                (inside.clone(), outside.clone(), Arc::clone(&stop.0), Arc::clone(&passed));
            let block = Arc::clone(&block);
            let thread = std::thread::spawn(move || {
                let mut broken = Vec::new();
                for at in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    match one(&inside, &outside, &address(block.load(Ordering::Relaxed), at), at, patience_s) {
                        Ok(()) => drop(count.fetch_add(1, Ordering::Relaxed)),
                        Err(why) => broken.push(why),
                    }
                }
                broken
            });
            (passed, thread)
        };
        let (fetched, fetching) = begin(page);
        let (resolved, resolving) = begin(name);
        let threads = vec![fetching, resolving];
        Self { inside, outside, stop, block, fetched, resolved, threads, counted: TrafficCounts::default() }
    }

    /// Waits for `more` further pages and names.
    pub fn until_short(&self, more: usize) {
        for count in [&self.fetched, &self.resolved] {
            let before = count.load(Ordering::Relaxed);
            let passed = || (count.load(Ordering::Relaxed) >= before + more).then_some(());
            until_within(SHORT_MAX, "short connections do not pass", passed);
        }
    }

    /// Uses other source addresses from now on: the flows of the previous group become idle.
    pub fn move_on(&self) {
        self.block.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts long connections, from addresses of different servers.
    pub fn long(&self) -> LongConnections {
        let block = self.block.load(Ordering::Relaxed);
        let client = |(at, port): (usize, u16)| {
            let mut command = self.inside.command("iperf3");
            command.args(["-c", &self.outside, "-p", &port.to_string(), "-B", &address(block, at * 7)]);
            command.args(["-t", SECONDS, "--json", "--connect-timeout", "60000"]);
            if at + 1 == IPERF.len() {
                command.args(["-u", "-b", "4M", "-l", "1200"]);
            } else {
                command.args(["-b", "40M"]);
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("iperf3")
        };
        LongConnections(IPERF.into_iter().enumerate().map(client).collect())
    }

    pub fn end(mut self) -> TrafficCounts {
        self.stop.0.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            self.counted.broken.extend(thread.join().expect("a thread of ours"));
        }
        self.counted.fetched = self.fetched.load(Ordering::Relaxed);
        self.counted.resolved = self.resolved.load(Ordering::Relaxed);
        self.counted
    }
}

/// Long connections in progress.
pub struct LongConnections(Vec<Child>);

impl LongConnections {
    /// Waits for their end.
    pub fn end(self, traffic: &mut Traffic) {
        let counted = &mut traffic.counted;
        for (at, child) in self.0.into_iter().enumerate() {
            let output = child.wait_with_output().expect("child process");
            let printed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if !output.status.success() || printed.get("error").is_some() {
                counted.broken.push(format!(
                    "iperf3 {at}: {} {}",
                    printed["error"],
                    String::from_utf8_lossy(&output.stderr)
                ));
                continue;
            }
            let end = &printed["end"];
            let count = |value: &Value| value.as_u64().unwrap_or(0);
            if at + 1 == IPERF.len() {
                counted.long_udp += 1;
                counted.datagrams += count(&end["sum"]["packets"]);
                counted.datagrams_lost += count(&end["sum"]["lost_packets"]);
            } else {
                counted.long_tcp += 1;
                counted.bytes += count(&end["sum_received"]["bytes"]);
                counted.resent += count(&end["sum_sent"]["retransmits"]);
            }
        }
    }
}

/// Fetches one whole page.
pub fn fetch(testbed: &LiveTestbed, at: usize, patience_s: u32) -> Result<(), String> {
    page(&testbed.inside, &testbed.outside.address().to_string(), &address(BLOCKS - 1, at), at, patience_s)
}

fn page(inside: &TestbedNode, outside: &str, from: &str, at: usize, patience_s: u32) -> Result<(), String> {
    let mut command = inside.command("curl");
    command.args(["--silent", "--show-error", "--max-time", &patience_s.to_string(), "--interface", from]);
    let got = printed(command.arg(format!("http://{outside}:{HTTP}/snat.p4c")))?;
    if got == PAGE { Ok(()) } else { Err(format!("curl {at}: another page of {} bytes", got.len())) }
}

fn name(inside: &TestbedNode, outside: &str, from: &str, at: usize, patience_s: u32) -> Result<(), String> {
    let mut command = inside.command("dig");
    // One query only: a second would hide the loss of the first.
    command.args(["+short", "+tries=1", &format!("+time={patience_s}"), "-b", from, &format!("@{outside}")]);
    let got = printed(command.arg(format!("n{at}.pathcall.test")))?;
    let got = String::from_utf8_lossy(&got).trim().to_owned();
    if got == ANSWER { Ok(()) } else { Err(format!("dig {at}: {got:?}")) }
}

fn printed(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().expect("the program is installed");
    let error = || format!("{:?}: {}", command.get_args().last(), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(output.stdout) } else { Err(error()) }
}
