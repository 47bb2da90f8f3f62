//! Packets through what is in the middle of two namespaces, and the processor's time that this takes.
//!
//! ```text
//! host 1 ── generate ─► veth ─► middle: XDP, or the kernel's network ─► veth ─► host 2: dropped
//! ```
//!
//! The generator is a program that the kernel runs on frames of its own (`BPF_F_TEST_XDP_LIVE_FRAMES`): it writes the next
//! packet's headers and sends it, 64 at a time. All of it, the middle and the other end included, happens on one processor:
//! in the generator's thread, or in that processor's `ksoftirqd`, whose time is added. What the generator takes alone is
//! found where the middle drops all, and is subtracted. The other end drops what comes as cheaply as it can: frames by XDP,
//! and packets that the kernel's network has made a buffer for because they are not for it. No batch crosses a link:
//! each packet is one (no GSO).

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
use super::thread_time;
use super::work::trace;
use crate::round_trip::Pinned;

const TEXT: &str = include_str!("../../peers/packets.bpf.c");
/// Packets that the generator knows.
const PACKETS: usize = 1 << 16;
const LIVE_FRAMES: u32 = 1 << 1;
/// The processor that all of it happens on.
const CPU: usize = 1;
/// Of the middle, towards host 1; and nobody's.
const MIDDLE_MAC: [u8; 6] = [2, 0x50, 0x43, 0, 1, 1];
const NOBODY: &str = "02:50:43:00:02:77";
/// What was sent has arrived when so long nothing more has.
const QUIET: Duration = Duration::from_millis(20);
/// How many of the packets at least.
const ARRIVED: f64 = 0.98;
const BASELINE_TURNS: usize = 5;
/// How often as many packets are sent as are to be seen.
const SEEN_TURNS: usize = 50;

/// Two hosts and a middle.
pub(crate) struct Ground {
    bed: Testbed,
    home: File,
    generator: Object,
    /// Of the middle: dropped before the bed.
    function: Option<XdpFunction>,
    /// Where frames end.
    end: Option<Link>,
    length: usize,
    /// Of one packet, without anything behind it, nanoseconds.
    alone_ns: f64,
    softirq: PathBuf,
}

impl Ground {
    /// With these flows' packets, by Zipf's law, of this length.
    pub(crate) fn new(flows: &[Flow], length: usize) -> Result<Self> {
        let bed = Testbed::builder().hosts(2).up()?;
        let home = File::open("/proc/self/ns/net")?;
        let generator = ObjectBuilder::default().open_memory(&compile(TEXT)?)?.load()?;
        let softirq = softirq(CPU)?;
        let mut ground = Self { bed, home, generator, function: None, end: None, length, alone_ns: 0.0, softirq };
        for (place, flow) in trace(flows.len(), PACKETS).into_iter().enumerate() {
            let mut headers = udp(flows[flow], length, MIDDLE_MAC);
            headers.truncate(HEADERS);
            headers.resize(48, 0);
            ground.put("packets", &(place as u32).to_ne_bytes(), &headers)?;
        }
        let interface = ground.run(1, "cat /sys/class/net/eth0/ifindex")?.trim().parse::<u32>()?;
        let sending = [PACKETS as u32, interface, 0].map(u32::to_ne_bytes).concat();
        ground.put("sending", &0u32.to_ne_bytes(), &sending)?;
        // Nothing is for host 2, and it has no program that packets would have to be copied for.
        ground.run(2, "ip link set dev eth0 xdpdrv off")?;
        ground.run(0, &format!("ip neigh replace 10.77.2.2 lladdr {NOBODY} dev h2 nud permanent"))?;
        ground.run(0, "for f in all default h1 h2; do echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; done")?;
        ground.alone_ns = ground.baseline()?;
        Ok(ground)
    }

    /// The middle is the kernel's network, which a shell's script sets up.
    pub(crate) fn kernel(self, script: &str) -> Result<Self> {
        self.run(0, script)?;
        Ok(self)
    }

    /// The middle is a function's element.
    pub(crate) fn element(mut self, mut function: XdpFunction) -> Result<Self> {
        self.within(0, || {
            function.attach("h1", 0)?;
            function.attach("h2", 1)?;
            Ok(())
        })?;
        self.function = Some(function);
        Ok(self)
    }

    /// Host 2 drops frames before they get a buffer, from now on: nothing sees them any more.
    pub(crate) fn ends_early(mut self) -> Result<Self> {
        self.end = Some(self.within(2, || self.discard("eth0"))?);
        Ok(self)
    }

    /// Packets of each second of the processor's time that the middle takes, and the other end with it.
    pub(crate) fn rate(&self, packets: u32) -> Result<f64> {
        // Flows are known, and caches warm.
        self.send(PACKETS as u32)?;
        let before = self.arrived()?;
        let took_ns = self.send(packets)?;
        let arrived = self.arrived()? - before;
        ensure!(arrived as f64 >= ARRIVED * f64::from(packets), "{arrived} of {packets} packets arrived");
        Ok(1e9 / (took_ns / arrived as f64 - self.alone_ns))
    }

    /// The first packets that come out, as host 2 sees them.
    pub(crate) fn seen(&self, count: usize) -> Result<Vec<Vec<u8>>> {
        let path = std::env::temp_dir().join(format!("{}.pcap", self.bed.name()));
        let mut capture = self.bed.host(2)?.capture(Some(&path))?;
        let mut tcpdump = capture.args(["-s", "2048", "-c", &count.to_string()]).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(tcpdump.stderr.take().context("its words")?).lines();
        ensure!(said.any(|line| line.is_ok_and(|line| line.contains("listening on"))), "tcpdump does not listen");
        // Its buffer is small, and nobody waits for it.
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
        let _drop = self.within(0, || self.discard("h1"))?;
        let packets = 4 * PACKETS as u32;
        let mut turns =
            (0..BASELINE_TURNS).map(|_| Ok(self.send(packets)? / f64::from(packets))).collect::<Result<Vec<f64>>>()?;
        turns.sort_by(f64::total_cmp);
        Ok(turns[BASELINE_TURNS / 2])
    }

    fn discard(&self, interface: &str) -> Result<Link> {
        let index = Command::new("ip").args(["-o", "link", "show", "dev", interface]).output()?;
        let text = String::from_utf8(index.stdout)?;
        let index = text.split(':').next().context("a number")?.trim().parse()?;
        let program = self.generator.progs_mut().find(|program| program.name() == "discard");
        Ok(program.context("it is there")?.attach_xdp(index)?)
    }

    /// Sends; the processor's time that it took until nothing more arrives, nanoseconds.
    fn send(&self, packets: u32) -> Result<f64> {
        let _pinned = Pinned::to(CPU)?;
        let frame = vec![0; self.length.max(HEADERS)];
        let softirq = self.softirq_ns()?;
        let thread = self.within(1, || {
            let input =
                ProgramInput { data_in: Some(&frame), repeat: packets, flags: LIVE_FRAMES, ..ProgramInput::default() };
            let program = self.generator.progs_mut().find(|program| program.name() == "generate");
            let program = program.context("it is there")?;
            let before = thread_time();
            program.test_run(input).context("sending live frames")?;
            Ok((thread_time() - before).as_nanos() as u64)
        })?;
        // What is left is another thread's: nobody says when it is done, but that nothing comes any more.
        let mut arrived = self.arrived()?;
        loop {
            std::thread::sleep(QUIET);
            let now = self.arrived()?;
            if now == arrived {
                break;
            }
            arrived = now;
        }
        Ok((thread + self.softirq_ns()? - softirq) as f64)
    }

    /// What `ksoftirqd` has taken.
    fn softirq_ns(&self) -> Result<u64> {
        let text = std::fs::read_to_string(&self.softirq)?;
        Ok(text.split_whitespace().next().context("a number")?.parse()?)
    }

    /// Packets that host 2 has had.
    fn arrived(&self) -> Result<u64> {
        Ok(self.bed.link(2)?.traffic()?.down.frames)
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) -> Result<()> {
        let map = self.generator.maps().find(|found| found.name() == map).context("it is there")?;
        Ok(map.update(key, value, MapFlags::ANY)?)
    }

    /// Does something in the middle (0) or in a host's namespace.
    fn within<T>(&self, node: usize, what: impl FnOnce() -> Result<T>) -> Result<T> {
        let node = if node == 0 { self.bed.element(1)? } else { self.bed.host(node)? };
        node.enter()?;
        let done = what();
        move_into_link_name_space(self.home.as_fd(), Some(LinkNameSpaceType::Network))?;
        done
    }

    /// Runs a shell's script there: what it says.
    fn run(&self, node: usize, script: &str) -> Result<String> {
        let node = if node == 0 { self.bed.element(1)? } else { self.bed.host(node)? };
        let mut shell = node.command("sh");
        let shell = shell.args(["-es"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut shell = shell.spawn()?;
        shell.stdin.take().context("its script")?.write_all(script.as_bytes())?;
        let output = shell.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Where the kernel says how long a processor's `ksoftirqd` has run.
fn softirq(cpu: usize) -> Result<PathBuf> {
    let name = format!("ksoftirqd/{cpu}\n");
    for process in std::fs::read_dir("/proc")? {
        let path = process?.path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name) {
            return Ok(path.join("schedstat"));
        }
    }
    bail!("processor {cpu} has no ksoftirqd here")
}

/// Packets of a capture, each as it stands behind its record's 16 bytes.
fn frames(path: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path)?;
    let mut rest = bytes.get(24..).context("a capture's header")?;
    let mut frames = Vec::new();
    while let Some((record, behind)) = rest.split_at_checked(16) {
        let length = u32::from_ne_bytes(record[8..12].try_into()?) as usize;
        let (frame, behind) = behind.split_at_checked(length).context("a packet is cut")?;
        frames.push(frame.to_vec());
        rest = behind;
    }
    Ok(frames)
}
