//! Real programs that talk from inside to outside, and what became of their connections.

use std::fmt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pathcall_testbed::Node;
use serde_json::Value;

use super::bed::{BLOCKS, Bed, address};
use pathcall_test_support::process::until_within;

pub const HTTP: u16 = 8000;
pub const DNS: u16 = 53;
/// One for each long connection; the last is UDP.
pub const IPERF: [u16; 4] = [5201, 5202, 5203, 5204];
/// What dnsmasq says of the name.
pub const ANSWER: &str = "203.0.113.9";
/// The page that is fetched, as it lies on this machine.
const PAGE: &[u8] = include_bytes!("../../../../functions/snat.p4c");
/// How long a page or a name is waited for where all are to come: longer than the machine stands still.
pub const PATIENT_S: u32 = 60;
/// The same where some are lost for good, and the next ones are to come.
pub const HASTY_S: u32 = 5;
/// Longest wait for several of them, one after the other.
const SHORT_MAX: Duration = Duration::from_secs(10 * PATIENT_S as u64);
/// Of a long connection: enough for a change in its middle.
const SECONDS: &str = "4";

/// What was counted.
#[derive(Debug, Default)]
pub struct Counted {
    pub fetched: usize,
    pub resolved: usize,
    pub long_tcp: usize,
    pub long_udp: usize,
    /// Of long connections.
    pub bytes: u64,
    pub resent: u64,
    pub datagrams: u64,
    pub datagrams_lost: u64,
    /// What was said of those that were broken.
    pub broken: Vec<String>,
}

impl Counted {
    /// That passed, of all kinds.
    pub fn connections(&self) -> usize {
        self.fetched + self.resolved + self.long_tcp + self.long_udp
    }
}

impl fmt::Display for Counted {
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

/// Says that threads are to end, also where a test fails: they would go on without what they need.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Programs that go on until it ends.
pub struct Traffic {
    inside: Node,
    outside: String,
    stop: Stop,
    /// Addresses that connections are from.
    block: Arc<AtomicUsize>,
    fetched: Arc<AtomicUsize>,
    resolved: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
    counted: Counted,
}

impl Traffic {
    /// Begins with pages and names, each of which is waited for so long.
    pub fn start(bed: &Bed, patience_s: u32) -> Self {
        let (inside, outside) = (bed.inside.clone(), bed.outside.address().to_string());
        let (stop, block) = (Stop::default(), Arc::new(AtomicUsize::new(0)));
        let begin = |one: fn(&Node, &str, &str, usize, u32) -> Result<(), String>| {
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
        Self { inside, outside, stop, block, fetched, resolved, threads, counted: Counted::default() }
    }

    /// Waits until so many more pages and names have come.
    pub fn until_short(&self, more: usize) {
        for count in [&self.fetched, &self.resolved] {
            let before = count.load(Ordering::Relaxed);
            let passed = || (count.load(Ordering::Relaxed) >= before + more).then_some(());
            until_within(SHORT_MAX, "short connections do not pass", passed);
        }
    }

    /// From now on connections are from other addresses: those of the group before fall silent.
    pub fn move_on(&self) {
        self.block.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins long connections, from addresses of different servers.
    pub fn long(&self) -> Long {
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
        Long(IPERF.into_iter().enumerate().map(client).collect())
    }

    pub fn end(mut self) -> Counted {
        self.stop.0.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            self.counted.broken.extend(thread.join().expect("a thread of ours"));
        }
        self.counted.fetched = self.fetched.load(Ordering::Relaxed);
        self.counted.resolved = self.resolved.load(Ordering::Relaxed);
        self.counted
    }
}

/// Connections that are under way.
pub struct Long(Vec<Child>);

impl Long {
    /// Waits for their end.
    pub fn end(self, traffic: &mut Traffic) {
        let counted = &mut traffic.counted;
        for (at, child) in self.0.into_iter().enumerate() {
            let output = child.wait_with_output().expect("a child of ours");
            let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if !output.status.success() || said.get("error").is_some() {
                counted.broken.push(format!(
                    "iperf3 {at}: {} {}",
                    said["error"],
                    String::from_utf8_lossy(&output.stderr)
                ));
                continue;
            }
            let end = &said["end"];
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

/// One page, whole.
pub fn fetch(bed: &Bed, at: usize, patience_s: u32) -> Result<(), String> {
    page(&bed.inside, &bed.outside.address().to_string(), &address(BLOCKS - 1, at), at, patience_s)
}

fn page(inside: &Node, outside: &str, from: &str, at: usize, patience_s: u32) -> Result<(), String> {
    let mut command = inside.command("curl");
    command.args(["--silent", "--show-error", "--max-time", &patience_s.to_string(), "--interface", from]);
    let got = said(command.arg(format!("http://{outside}:{HTTP}/snat.p4c")))?;
    if got == PAGE { Ok(()) } else { Err(format!("curl {at}: another page of {} bytes", got.len())) }
}

fn name(inside: &Node, outside: &str, from: &str, at: usize, patience_s: u32) -> Result<(), String> {
    let mut command = inside.command("dig");
    // One question: a second would hide that the first was lost.
    command.args(["+short", "+tries=1", &format!("+time={patience_s}"), "-b", from, &format!("@{outside}")]);
    let got = said(command.arg(format!("n{at}.pathcall.test")))?;
    let got = String::from_utf8_lossy(&got).trim().to_owned();
    if got == ANSWER { Ok(()) } else { Err(format!("dig {at}: {got:?}")) }
}

fn said(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.stdin(Stdio::null()).output().expect("it is installed");
    let error = || format!("{:?}: {}", command.get_args().last(), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(output.stdout) } else { Err(error()) }
}
