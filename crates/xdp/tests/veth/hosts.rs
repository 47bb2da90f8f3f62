//! Three hosts, each connected to an interface of the element's machine: network namespaces and veth links of this
//! process.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pathcall_xdp::{AttachMode, Config, Error, KernelSwitch};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::frames::{self, SERVER, WORKERS};
use crate::common::{ELEMENT, address, config};

/// Hosts besides the element, indexed by `Host as usize`.
const HOSTS: [(u32, &str); 3] = [(WORKERS[0], "a"), (WORKERS[1], "b"), (SERVER, "s")];
/// Longest wait for a packet.
const WAIT_MAX: Duration = Duration::from_secs(180);
/// Time before a repeated probe: a kernel limits the rate of ICMP errors, and reports a missing neighbour only after a
/// while.
const AGAIN: Duration = Duration::from_millis(200);

/// Machine of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    A,
    B,
    Server,
    Element,
}

/// Network namespaces; their drop removes them.
pub struct Hosts {
    prefix: String,
}

/// Program at the element's interfaces, and an idle program at the hosts' interfaces, because a veth accepts packets
/// from XDP only if it has a program.
pub struct Attached {
    pub element: KernelSwitch,
    _hosts: KernelSwitch,
}

impl Hosts {
    /// Creates namespaces and links, with routing by the element's machine. The neighbour entries of the workers are
    /// static; the server's are found by ARP.
    pub fn up() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let hosts = Self { prefix: format!("pc-xdpt-{}-{}-", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        let element = hosts.name(Host::Element);
        ip(&format!("netns add {element}"));
        ip(&format!("-n {element} link set lo up"));
        ip(&format!("-n {element} addr add {}/32 dev lo", ELEMENT.ip()));
        for (i, (id, letter)) in HOSTS.into_iter().enumerate() {
            let (host, addr) = (format!("{}{letter}", hosts.prefix), Ipv4Addr::from(id));
            let (near, far) = (format!("02:00:00:00:00:e{i}"), format!("02:00:00:00:00:a{i}"));
            ip(&format!("netns add {host}"));
            ip(&format!(
                "-n {element} link add e{letter} address {near} type veth peer name eth0 address {far} netns {host}"
            ));
            ip(&format!("-n {element} link set e{letter} up"));
            ip(&format!("-n {host} link set eth0 up"));
            ip(&format!("-n {host} addr add {addr}/32 dev eth0"));
            ip(&format!("-n {host} route add default via {} dev eth0 onlink", ELEMENT.ip()));
            ip(&format!("-n {element} route add {addr}/32 dev e{letter}"));
            if id != SERVER {
                ip(&format!("-n {element} neigh add {addr} dev e{letter} lladdr {far} nud permanent"));
                ip(&format!("-n {host} neigh add {} dev eth0 lladdr {near} nud permanent", ELEMENT.ip()));
            }
        }
        hosts.within(Host::Element, || fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a writable setting"));
        hosts
    }

    fn name(&self, host: Host) -> String {
        let letter = match host {
            Host::Element => "e",
            Host::A | Host::B | Host::Server => HOSTS[host as usize].1,
        };
        format!("{}{letter}", self.prefix)
    }

    /// Runs `work` in another namespace, on a thread of its own.
    pub fn within<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter(host);
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves this thread into a namespace.
    pub fn enter(&self, host: Host) {
        let namespace = File::open(format!("/run/netns/{}", self.name(host))).expect("a namespace");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
    }

    /// Program with the application, attached to all interfaces; `inlined`: inline mode.
    pub fn attached(&self, inlined: bool) -> Result<Attached, Error> {
        let config = Config { routed: true, inlined, ..config(frames::SIZE) };
        let mut element = KernelSwitch::load(&config).and_then(frames::admitted)?;
        self.within(Host::Element, || {
            HOSTS.iter().try_for_each(|(_, letter)| {
                element.attach(&format!("e{letter}")).map(|mode| assert_eq!(mode, AttachMode::Native))
            })
        })?;
        let mut passing = KernelSwitch::load(&Config { inlined: false, ..config })?;
        for host in [Host::A, Host::B, Host::Server] {
            self.within(host, || passing.attach("eth0"))?;
        }
        Ok(Attached { element, _hosts: passing })
    }

    /// Gives the hosts and the element's machine IPv6 addresses, without neighbour entries.
    pub fn with_ipv6(&self) {
        let element = self.name(Host::Element);
        for (i, (_, letter)) in HOSTS.into_iter().enumerate() {
            let host = format!("{}{letter}", self.prefix);
            ip(&format!("-n {element} -6 addr add fd00:{i}::1/64 dev e{letter} nodad"));
            ip(&format!("-n {host} -6 addr add fd00:{i}::2/64 dev eth0 nodad"));
            ip(&format!("-n {host} -6 route add default via fd00:{i}::1 dev eth0"));
        }
        self.within(Host::Element, || {
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").expect("a writable setting")
        });
    }

    /// IPv6 address of a host.
    pub fn ipv6(host: Host) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, host as u16, 0, 0, 0, 0, 0, 2)
    }

    /// Removes the neighbour entries, so that ARP is needed.
    pub fn forget_neighbours(&self) {
        for host in [Host::A, Host::B, Host::Server, Host::Element] {
            ip(&format!("-n {} neigh flush all nud permanent nud reachable nud stale", self.name(host)));
        }
    }

    /// Socket of a host, at the address of its frames.
    pub fn socket(&self, host: Host) -> UdpSocket {
        self.bind(host, address(HOSTS[host as usize].0))
    }

    /// Socket of a host.
    pub fn bind(&self, host: Host, addr: impl Into<SocketAddr>) -> UdpSocket {
        let addr = addr.into();
        self.within(host, || {
            let socket = UdpSocket::bind(addr).expect("its own address");
            socket.set_read_timeout(Some(WAIT_MAX)).expect("supported");
            socket
        })
    }

    /// Number of packets with a wrong UDP checksum that a host's kernel has dropped.
    pub fn checksum_errors(&self, host: Host) -> u64 {
        let text = self.within(host, || fs::read_to_string("/proc/thread-self/net/snmp").expect("there"));
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: ")).map(str::split_whitespace);
        let (mut names, mut values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.position(|name| name == "InCsumErrors").expect("counted");
        values.nth(at).expect("a value").parse().expect("a number")
    }

    /// Whether the machine of an address answers a host, with an ICMP error for an unused port.
    pub fn reaches(&self, host: Host, addr: impl Into<IpAddr>) -> bool {
        let addr = addr.into();
        let own = match addr {
            IpAddr::V4(_) => Ipv4Addr::from(HOSTS[host as usize].0).into(),
            IpAddr::V6(_) => Self::ipv6(host).into(),
        };
        let socket = self.bind(host, SocketAddr::new(own, 0));
        socket.connect(SocketAddr::new(addr, 1)).expect("there is a way");
        socket.set_read_timeout(Some(AGAIN)).expect("supported");
        let started = Instant::now();
        while started.elapsed() < WAIT_MAX {
            // The error of an earlier packet may be reported here.
            let sent = socket.send(b"?").and_then(|_| socket.recv(&mut [0]));
            if sent.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
                return true;
            }
        }
        false
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [Host::A, Host::B, Host::Server, Host::Element] {
            // A namespace that was never created is ignored.
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}

/// Runs `ip`.
fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip: Debian package iproute2");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
