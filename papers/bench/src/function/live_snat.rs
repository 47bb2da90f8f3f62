//! Round trips through SNAT between hosts, by a live function or by nftables (CLIP Table III).
//!
//! ```text
//! host 1: flows ══ middle: live element in XDP, or nftables ══ host 2: echo
//!                                    ║
//!                   host 3: server of the function, if it is live
//! ```
//!
//! Flows are drawn by Zipf's law, one packet at a time. A live function places the entries of large flows in the
//! element by itself; packets of the others pass the server.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pathcall_live::{digest, element, server};
use pathcall_netfn::handler;
use pathcall_netfn::live::Config;
use pathcall_netfn::scale::Topology;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::{ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest};
use pathcall_testbed::{Testbed, TestbedNode};

use super::packet_cost::trace;
use super::parts::CompiledFunction;
use crate::testbed::child::KillOnDrop;
use crate::testbed::{Party, RunningJob, WaitMode};

/// Flows, each with a port of its own.
pub(crate) const FLOWS: usize = 256;
/// Entries of the element.
const ENTRIES: u32 = 1024;
/// Address of the echo, which is not inside for the function.
const ECHO: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 443);
const PAYLOAD: usize = 18;
/// Length of the message that ends the echo.
const END: usize = 1;
/// Time after which a missing packet counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(10);
const SERVER: &str = "s1";
/// Parts of the live function, and their ready line.
const ELEMENT: &str = "element";
const OF_SERVER: &str = "server";
const READY: &str = "ready";
/// MTU of packets, and of the link to the server, which carries them with a header more.
const MTU: u32 = 1500;
const SERVER_MTU: u32 = 1700;
/// Configuration of the middle with nftables.
const NFTABLES: &str = "ip route add 198.51.100.0/24 via 10.77.2.2 dev h2
nft 'add table ip nat'
nft 'add chain ip nat post { type nat hook postrouting priority 100 ; }'
nft 'add rule ip nat post oifname h2 snat to 192.0.2.1-192.0.2.14'
";
/// Limit for hanging until the server is in the group.
const STARTING_MAX: Duration = Duration::from_secs(120);
const STATUS_INTERVAL: Duration = Duration::from_millis(5);

/// Hosts with a middle that translates addresses.
pub(crate) struct SnatPath {
    /// Processes of the live function: server and element.
    _function: Option<[KillOnDrop; 2]>,
    /// Ends the echo when dropped, before its party.
    _echoing: EndEcho,
    _echo: Party,
    caller: Party,
    middle: Party,
    /// URL of the function's controller; empty without one.
    url: String,
    _testbed: Testbed,
}

impl SnatPath {
    /// Uses nftables.
    pub(crate) fn nftables() -> Result<Self> {
        let testbed = Testbed::builder().hosts(2).up()?;
        let middle = testbed.element(1)?;
        run(&middle, "for f in all default h1 h2; do echo 0 > /proc/sys/net/ipv4/conf/$f/rp_filter; done")?;
        run(&middle, NFTABLES)?;
        Self::start(testbed)
    }

    /// Uses a live function with one server.
    pub(crate) fn live() -> Result<Self> {
        let testbed = Testbed::builder().hosts(3).mtu(SERVER_MTU).up()?;
        let (inside, outside, node) = (testbed.host(1)?, testbed.host(2)?, testbed.element(1)?);
        // The element is a wire: each host takes the other for its gateway.
        for (one, other, gateway) in [(&inside, &outside, "10.77.1.1"), (&outside, &inside, "10.77.2.1")] {
            let mac = mac(other)?;
            run(
                one,
                &format!("ip link set eth0 mtu {MTU}\nip neigh replace {gateway} lladdr {mac} dev eth0 nud permanent"),
            )?;
        }
        run(&node, &format!("ip link set h1 mtu {MTU}\nip link set h2 mtu {MTU}"))?;
        let host = testbed.host(3)?;
        let mut path = Self::start(testbed)?;
        let (element, url) = start_part(&node, &[ELEMENT, &node.address().to_string(), &mac(&host)?])?;
        let (server, _) = start_part(&host, &[OF_SERVER, &url])?;
        (path._function, path.url) = (Some([server, element]), url);
        path.join_group()?;
        Ok(path)
    }

    /// Starts the echo and the caller.
    fn start(testbed: Testbed) -> Result<Self> {
        let (inside, outside) = (testbed.host(1)?, testbed.host(2)?);
        run(&outside, &format!("ip addr add {}/32 dev eth0", ECHO.ip()))?;
        let at = |node| Party::at(node, WaitMode::Blocking, None);
        let (caller, echo, middle) = (at(&inside)?, at(&outside)?, at(&testbed.element(1)?)?);
        let socket = echo.run(|| async { Ok(UdpSocket::bind(ECHO)?) })?;
        let end = socket.try_clone()?;
        let echoing = EndEcho { socket: end, echoing: Some(echo.begin(move || async move { echo_all(&socket) })) };
        Ok(Self {
            _function: None,
            _echoing: echoing,
            _echo: echo,
            caller,
            middle,
            url: String::new(),
            _testbed: testbed,
        })
    }

    /// Lets the server have flows.
    fn join_group(&self) -> Result<()> {
        let url = self.url.clone();
        self.middle.run(move || async move {
            let mut function = FunctionClient::connect(url).await?;
            function.change_group(ChangeGroupRequest { add: vec![SERVER.to_owned()], remove: Vec::new() }).await?;
            let began = Instant::now();
            // The controller reports the group only when it is asked.
            while !function
                .function_status(FunctionStatusRequest {})
                .await?
                .into_inner()
                .servers
                .iter()
                .any(|s| s.in_group)
            {
                ensure!(began.elapsed() < STARTING_MAX, "the server is not in the function's group");
                tokio::time::sleep(STATUS_INTERVAL).await;
            }
            Ok(())
        })
    }

    /// Requests that the server has handled so far; 0 without one.
    pub(crate) fn requests(&self) -> Result<u64> {
        if self.url.is_empty() {
            return Ok(0);
        }
        let url = self.url.clone();
        let status: FunctionStatusReply = self.middle.run(move || async move {
            Ok(FunctionClient::connect(url).await?.function_status(FunctionStatusRequest {}).await?.into_inner())
        })?;
        Ok(status.counters.get("requests").copied().unwrap_or_default())
    }

    /// Sockets of new flows, each of which has sent a packet.
    pub(crate) fn flows(&self) -> Result<Vec<UdpSocket>> {
        let at = self.caller.free_address();
        self.caller.run(move || async move {
            let flow = |_| {
                let socket = UdpSocket::bind(at)?;
                socket.connect(ECHO)?;
                socket.set_read_timeout(Some(LOST_AFTER))?;
                round_trip(&socket)?;
                Ok(socket)
            };
            (0..FLOWS).map(flow).collect()
        })
    }

    /// Mean and standard deviation of the round trips of packets, in microseconds.
    pub(crate) fn round_trips(&self, flows: &[UdpSocket], packets: usize) -> Result<[f64; 2]> {
        let flows: Vec<UdpSocket> = flows.iter().map(UdpSocket::try_clone).collect::<std::io::Result<_>>()?;
        let took = self.caller.run(move || async move {
            trace(flows.len(), packets).into_iter().map(|flow| round_trip(&flows[flow])).collect::<Result<Vec<_>>>()
        })?;
        let took: Vec<f64> = took.iter().map(|took| took.as_secs_f64() * 1e6).collect();
        let mean = took.iter().sum::<f64>() / took.len() as f64;
        let variance = took.iter().map(|took| (took - mean).powi(2)).sum::<f64>() / took.len() as f64;
        Ok([mean, variance.sqrt()])
    }
}

fn round_trip(socket: &UdpSocket) -> Result<Duration> {
    let (began, mut answer) = (Instant::now(), [0; PAYLOAD]);
    socket.send(&[7; PAYLOAD])?;
    let length = socket.recv(&mut answer).context("a packet was lost")?;
    let took = began.elapsed();
    ensure!(length == PAYLOAD && answer == [7; PAYLOAD], "another packet came back");
    Ok(took)
}

/// Returns each packet to its sender, whose address has to be one of the pool.
fn echo_all(socket: &UdpSocket) -> Result<()> {
    let mut packet = [0; PAYLOAD];
    loop {
        let (length, from) = socket.recv_from(&mut packet)?;
        if length == END {
            return Ok(());
        }
        match from.ip() {
            std::net::IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2] => socket.send_to(&packet[..length], from)?,
            other => bail!("a packet came from {other}, which is not of the pool"),
        };
    }
}

/// Ends the echo on drop.
struct EndEcho {
    socket: UdpSocket,
    echoing: Option<RunningJob<()>>,
}

impl Drop for EndEcho {
    fn drop(&mut self) {
        // An echo that has failed has ended, and its error is that of the packet that was lost.
        let _ = self.socket.send_to(&[0; END], ECHO);
        let _ = self.echoing.take().map(RunningJob::wait);
    }
}

/// Starts a process of this program on a node as a part of the live function: [`run_part`]. Returns the rest of its
/// ready line.
fn start_part(node: &TestbedNode, part: &[&str]) -> Result<(KillOnDrop, String)> {
    let mut command = node.command(std::env::current_exe()?);
    command.args(["--live-part", &part.join(",")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = KillOnDrop(command.spawn()?);
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().context("no output of a part")?).read_line(&mut line)?;
    let rest = line.strip_prefix(READY).context("a part of the live function did not start")?;
    Ok((process, rest.trim().to_owned()))
}

/// Runs a part of the live function until the standard input ends: the element, or its server. A process of its own
/// sees the interfaces of its node in `/sys`.
pub(crate) fn run_part(part: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let function = CompiledFunction::read("snat", ENTRIES)?;
    let digest = digest(&function.whole, ENTRIES, None);
    // The testbed is an isolated network.
    let security = pathcall_control::Security::default().insecure(true);
    let ready = |rest: &str| println!("{READY} {rest}");
    match part.split(',').collect::<Vec<_>>()[..] {
        [ELEMENT, address, mac] => runtime.block_on(async {
            let setup = element::ElementSetup {
                program: function.whole,
                split: function.split,
                digest,
                topology: Topology::parse("topology", &topology(mac))?,
                entries: Vec::new(),
                config: Config::default(),
                listen: SocketAddr::new(address.parse()?, 0),
                switch: None,
                security,
            };
            let element = element::start(setup).await?;
            ready(element.url());
            end_of_input().await;
            element.shutdown().await;
            Ok(())
        }),
        [OF_SERVER, controller] => runtime.block_on(async {
            let setup = server::ServerSetup {
                name: SERVER.to_owned(),
                interface: "eth0".to_owned(),
                controller: controller.to_owned(),
                security,
                program: function.whole,
                split: function.split,
                digest,
                locate: Box::new(|_| None),
                handler: handler::Config::default(),
                cache: handler::cache_dir(),
            };
            server::serve(setup, || ready(""), end_of_input()).await?;
            Ok(())
        }),
        _ => bail!("unknown part of the live function: {part:?}"),
    }
}

/// Resolves when the process that started this one closes its input, or has ended.
async fn end_of_input() {
    // An error ends the input, too.
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}

fn topology(mac: &str) -> String {
    let mut text = "[[device]]\nname = \"e1\"\nrole = \"element\"\n".to_owned();
    for (port, (name, interface)) in [("inside", "h1"), ("outside", "h2")].into_iter().enumerate() {
        text += &format!("[[device]]\nname = \"{name}\"\nrole = \"network\"\n");
        text += &format!("[[link]]\nbetween = [\"e1:{port}\", \"{name}\"]\ninterface = \"{interface}\"\n");
    }
    text += &format!("[[device]]\nname = \"{SERVER}\"\nrole = \"server\"\nmac = \"{mac}\"\n");
    text + &format!("[[link]]\nbetween = [\"e1:16\", \"{SERVER}\"]\ninterface = \"h3\"\n")
}

fn mac(node: &TestbedNode) -> Result<String> {
    Ok(run(node, "cat /sys/class/net/eth0/address")?.trim().to_owned())
}

/// Runs a shell script on a node; returns its output.
fn run(node: &TestbedNode, script: &str) -> Result<String> {
    let output = node.command("sh").args(["-ec", script]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
