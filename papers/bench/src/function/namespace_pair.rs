//! Packets through the middle of two namespaces, and the processor time of the middle.
//!
//! ```text
//! host 1 ── generate ─► veth ─► middle: XDP, or the kernel's network ─► veth ─► host 2: dropped
//! ```
//!
//! The generator is a program that the kernel runs on its own frames (`BPF_F_TEST_XDP_LIVE_FRAMES`): it writes the
//! headers of the next packet and sends it, 64 at a time. Everything, including the middle and the other end, happens
//! on one processor: in the generator's thread, or in `ksoftirqd` of that processor, whose time is added. The
//! generator's own time is measured with a middle that drops all packets, and is subtracted. The other end drops
//! packets as cheaply as possible: frames by XDP, and packets with a kernel buffer because of their wrong destination.
//! No batch crosses a link: each packet travels alone (no GSO).

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use pathcall_testbed::Testbed;
use pathcall_xdp::function::{XdpFunction, compile};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::frames::{Flow, HEADERS, udp};
use super::packet_cost::trace;
use super::thread_time;
use crate::round_trip::Pinned;

const TEXT: &str = include_str!("../../peers/packets.bpf.c");
/// Number of different packets of the generator.
const PACKETS: usize = 1 << 16;
const LIVE_FRAMES: u32 = 1 << 1;
/// Processor of the generator and of all later stages.
const CPU: usize = 1;
/// MAC addresses of the middle, towards host 1, and of no host.
const MIDDLE_MAC: [u8; 6] = [2, 0x50, 0x43, 0, 1, 1];
const NOBODY: &str = "02:50:43:00:02:77";
/// Quiet period after which all sent packets have arrived.
const QUIET: Duration = Duration::from_millis(20);
/// Minimum share of packets that must arrive.
const ARRIVED: f64 = 0.98;
const BASELINE_TURNS: usize = 5;
/// Maximum number of rounds of packets that are sent to capture the wanted ones.
const SEEN_TURNS: usize = 50;

/// Two hosts and a middle.
pub(crate) struct NamespacePair {
    testbed: Testbed,
    home_namespace: File,
    generator: Object,
    /// Function of the middle; dropped before the testbed.
    function: Option<XdpFunction>,
    /// XDP program at the receiving end.
    receiver: Option<Link>,
    length: usize,
    /// Generator's own nanoseconds per packet.
    alone_ns: f64,
    softirq_path: PathBuf,
}

impl NamespacePair {
    /// Creates the environment with packets of these flows, by Zipf's law, of this length.
    pub(crate) fn new(flows: &[Flow], length: usize) -> Result<Self> {
        let testbed = Testbed::builder().hosts(2).up()?;
        let home_namespace = File::open("/proc/self/ns/net")?;
        let generator = ObjectBuilder::default().open_memory(&compile(TEXT)?)?.load()?;
        let softirq_path = softirq_path(CPU)?;
        let mut pair = Self {
            testbed,
            home_namespace,
            generator,
            function: None,
            receiver: None,
            length,
            alone_ns: 0.0,
            softirq_path,
        };
        for (place, flow) in trace(flows.len(), PACKETS).into_iter().enumerate() {
            let mut headers = udp(flows[flow], length, MIDDLE_MAC);
            headers.truncate(HEADERS);
            headers.resize(48, 0);
            pair.put("packets", &(place as u32).to_ne_bytes(), &headers)?;
        }
        let interface = pair.run(1, "cat /sys/class/net/eth0/ifindex")?.trim().parse::<u32>()?;
        let sending = [PACKETS as u32, interface, 0].map(u32::to_ne_bytes).concat();
        pair.put("sending", &0u32.to_ne_bytes(), &sending)?;
        // Host 2 needs no packets, and without a program there packets are not copied.
        pair.run(2, "ip link set dev eth0 xdpdrv off")?;
        pair.run(0, &format!("ip neigh replace 10.77.2.2 lladdr {NOBODY} dev h2 nud permanent"))?;
        pair.run(0, "for f in all default h1 h2; do echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; done")?;
        pair.alone_ns = pair.baseline()?;
        Ok(pair)
    }

    /// Uses the kernel's network as the middle, configured by a shell script.
    pub(crate) fn kernel(self, script: &str) -> Result<Self> {
        self.run(0, script)?;
        Ok(self)
    }

    /// Uses a function's element as the middle.
    pub(crate) fn element(mut self, mut function: XdpFunction) -> Result<Self> {
        self.in_namespace(0, || {
            function.attach("h1", 0)?;
            function.attach("h2", 1)?;
            Ok(())
        })?;
        self.function = Some(function);
        Ok(self)
    }

    /// Drops frames at host 2 before they get a buffer; captures no longer see them.
    pub(crate) fn ends_early(mut self) -> Result<Self> {
        self.receiver = Some(self.in_namespace(2, || self.discard("eth0"))?);
        Ok(self)
    }

    /// Packets per second of processor time in the middle and at the other end.
    pub(crate) fn rate(&self, packets: u32) -> Result<f64> {
        // Warm-up of flows and caches.
        self.send(PACKETS as u32)?;
        let before = self.arrived()?;
        let took_ns = self.send(packets)?;
        let arrived = self.arrived()? - before;
        ensure!(arrived as f64 >= ARRIVED * f64::from(packets), "{arrived} of {packets} packets arrived");
        Ok(1e9 / (took_ns / arrived as f64 - self.alone_ns))
    }

    /// First packets that host 2 receives.
    pub(crate) fn seen(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let path = std::env::temp_dir().join(format!("{}.pcap", self.testbed.name()));
        let mut capture = self.testbed.host(2)?.capture(Some(&path))?;
        let mut tcpdump = capture.args(["-s", "2048", "-c", &count.to_string()]).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(tcpdump.stderr.take().context("no stderr of tcpdump")?).lines();
        ensure!(said.any(|line| line.is_ok_and(|line| line.contains("listening on"))), "tcpdump does not listen");
        // The capture buffer is small and may overflow.
        let mut turns = 0;
        while tcpdump.try_wait()?.is_none() {
            if turns == SEEN_TURNS {
                tcpdump.kill()?;
                tcpdump.wait()?;
                bail!("fewer than {count} packets arrived");
            }
            self.send(count as u32)?;
            turns += 1;
        }
        let frames = frames(&path);
        std::fs::remove_file(&path)?;
        frames
    }

    fn baseline(&self) -> Result<f64> {
        let _drop = self.in_namespace(0, || self.discard("h1"))?;
        let packets = 4 * PACKETS as u32;
        let mut turns =
            (0..BASELINE_TURNS).map(|_| Ok(self.send(packets)? / f64::from(packets))).collect::<Result<Vec<f64>>>()?;
        turns.sort_by(f64::total_cmp);
        Ok(turns[BASELINE_TURNS / 2])
    }

    fn discard(&self, interface: &str) -> Result<Link> {
        let index = Command::new("ip").args(["-o", "link", "show", "dev", interface]).output()?;
        let text = String::from_utf8(index.stdout)?;
        let index = text.split(':').next().context("number expected")?.trim().parse()?;
        let program = self.generator.progs_mut().find(|program| program.name() == "discard");
        Ok(program.context("it is there")?.attach_xdp(index)?)
    }

    /// Sends packets; returns the processor time until the last arrival, nanoseconds.
    fn send(&self, packets: u32) -> Result<f64> {
        let _pinned = Pinned::to(CPU)?;
        let frame = vec![0; self.length.max(HEADERS)];
        let softirq_path = self.softirq_ns()?;
        let thread = self.in_namespace(1, || {
            let input =
                ProgramInput { data_in: Some(&frame), repeat: packets, flags: LIVE_FRAMES, ..ProgramInput::default() };
            let program = self.generator.progs_mut().find(|program| program.name() == "generate");
            let program = program.context("it is there")?;
            let before = thread_time();
            program.test_run(input).context("sending live frames")?;
            Ok((thread_time() - before).as_nanos() as u64)
        })?;
        // Another thread processes the rest; its only completion signal is that arrivals stop.
        let mut arrived = self.arrived()?;
        loop {
            std::thread::sleep(QUIET);
            let now = self.arrived()?;
            if now == arrived {
                break;
            }
            arrived = now;
        }
        Ok((thread + self.softirq_ns()? - softirq_path) as f64)
    }

    /// Time of `ksoftirqd`.
    fn softirq_ns(&self) -> Result<u64> {
        let text = std::fs::read_to_string(&self.softirq_path)?;
        Ok(text.split_whitespace().next().context("number expected")?.parse()?)
    }

    /// Packets received by host 2.
    fn arrived(&self) -> Result<u64> {
        Ok(self.testbed.link(2)?.traffic()?.down.frames)
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let map = self.generator.maps().find(|found| found.name() == map).context("it is there")?;
        Ok(map.update(key, value, MapFlags::ANY)?)
    }

    /// Runs `what` in the namespace of the middle (0) or of a host.
    fn in_namespace<T>(&self, node: usize, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let node = if node == 0 { self.testbed.element(1)? } else { self.testbed.host(node)? };
        node.enter()?;
        let done = what();
        move_into_link_name_space(self.home_namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        done
    }

    /// Runs a shell script in a namespace; returns its output.
    fn run(&self, node: usize, script: &str) -> Result<String> {
        let node = if node == 0 { self.testbed.element(1)? } else { self.testbed.host(node)? };
        let mut shell = node.command("sh");
        let shell = shell.args(["-es"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn()?;
        shell.stdin.take().context("no stdin of the shell")?.write_all(script.as_bytes())?;
        let output = shell.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Path of the run time of a processor's `ksoftirqd`.
fn softirq_path(cpu: usize) -> Result<PathBuf> {
    let name = format!("ksoftirqd/{cpu}\n");
    for process in std::fs::read_dir("/proc")? {
        let path = process?.path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name) {
            return Ok(path.join("schedstat"));
        }
    }
    bail!("no ksoftirqd of processor {cpu} found")
}

/// Packets of a capture, without the 16 bytes of record header.
fn frames(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path)?;
    let mut rest = bytes.get(24..).context("truncated header of the capture")?;
    let mut frames = Vec::new();
    while let Some((record, behind)) = rest.split_at_checked(16) {
        let length = u32::from_ne_bytes(record[8..12].try_into()?) as usize;
        let (frame, behind) = behind.split_at_checked(length).context("truncated packet in the capture")?;
        frames.push(frame.to_vec());
        rest = behind;
    }
    Ok(frames)
}
