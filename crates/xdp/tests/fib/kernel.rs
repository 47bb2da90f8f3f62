//! Kernel's routing table in a namespace, and its lookups.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::{self, Command, Stdio};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::routes::{Hops, Prefix, Routes};

/// Lookups in one message; the answers fit the socket's buffer.
const BATCH: usize = 128;
const BUFFER_BYTES: usize = 8 << 20;

const GET_ROUTE: u16 = 26;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Flag: answer with the matching route itself, and not with its result for one packet.
const FIB_MATCH: u32 = 0x2000;
const DST: u16 = 1;
const GATEWAY: u16 = 5;
const MULTIPATH: u16 = 9;
/// Sizes of `struct nlmsghdr`, `struct rtmsg`, `struct rtnexthop`.
const HEAD: usize = 16;
const ROUTE: usize = 12;
const NEXT_HOP: usize = 8;

/// Answer of the kernel for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Route {
        /// Length of the route's prefix.
        bits: u8,
        hops: BTreeSet<u16>,
    },
    /// Error: no route, or a route that leads nowhere.
    Refused(i32),
}

/// Namespace with routes.
pub struct Kernel {
    space: Space,
    netlink: OwnedFd,
    groups: Vec<Vec<u16>>,
}

/// Whether namespaces are permitted here; prints a message if not.
pub fn permitted() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0);
    if !root {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "namespaces need root");
        println!("skipped: namespaces need root");
    }
    root
}

/// Address of a next hop.
fn gateway(hop: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0ac8_0100 + u32::from(hop))
}

impl Kernel {
    /// Namespace with one link that leads to all next hops.
    pub fn up(routes: &Routes) -> Self {
        let name = format!("pc-fib-{}", process::id());
        run(&format!("netns add {name}"));
        let space = Space(name.clone());
        run(&format!("-n {name} link add v0 type veth peer name v1"));
        run(&format!("-n {name} addr add 10.200.0.1/16 dev v0"));
        for link in ["lo", "v0", "v1"] {
            run(&format!("-n {name} link set {link} up"));
        }
        let path = format!("/run/netns/{name}");
        let netlink = std::thread::spawn(move || {
            let namespace = File::open(path).expect("it is there");
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).expect("a socket")
        });
        let netlink = netlink.join().expect("the thread ends");
        sockopt::set_socket_recv_buffer_size_force(&netlink, BUFFER_BYTES).expect("root may");
        Self { space, netlink, groups: routes.groups.clone() }
    }

    /// Applies one operation to all routes: `add`, `del`, `replace`.
    pub fn batch(&mut self, what: &str, routes: &[(Prefix, Hops)]) {
        let mut text = String::new();
        for ((address, bits), hops) in routes {
            let prefix = format!("{}/{bits}", Ipv4Addr::from(*address));
            let _ = match hops {
                Hops::None(kind) => writeln!(text, "route {what} {kind} {prefix}"),
                Hops::Group(group) => match &self.groups[*group][..] {
                    [hop] => writeln!(text, "route {what} {prefix} via {} dev v0", gateway(*hop)),
                    hops => {
                        let hops = hops.iter().map(|hop| format!(" nexthop via {} dev v0", gateway(*hop)));
                        writeln!(text, "route {what} {prefix}{}", hops.collect::<String>())
                    }
                },
            };
        }
        let mut ip = Command::new("ip");
        let mut ip = ip.args(["-n", &self.space.0, "-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip");
        ip.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
        assert!(ip.wait().expect("it ends").success(), "ip route {what}");
    }

    /// Answers for all addresses.
    pub fn look_up(&mut self, addresses: &[Ipv4Addr]) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(addresses.len());
        let mut buffer = vec![0; 16 << 10];
        for some in addresses.chunks(BATCH) {
            let mut message = Vec::with_capacity(BATCH * (HEAD + ROUTE + 8));
            some.iter().enumerate().for_each(|(at, address)| ask(&mut message, at as u32, *address));
            let sent = send(&self.netlink, &message, SendFlags::empty()).expect("sent");
            assert_eq!(sent, message.len());
            for at in 0..some.len() {
                let (_, length) = recv(&self.netlink, &mut buffer[..], RecvFlags::empty()).expect("an answer");
                answers.push(answer(&buffer[..length], at as u32));
            }
        }
        answers
    }
}

/// Appends a `RTM_GETROUTE` request for one address.
fn ask(message: &mut Vec<u8>, number: u32, address: Ipv4Addr) {
    message.extend(((HEAD + ROUTE + 8) as u32).to_ne_bytes());
    message.extend(GET_ROUTE.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend([0; 4]);
    // Address family, length of the destination; all other fields are 0.
    message.extend([2, 32, 0, 0, 0, 0, 0, 0]);
    message.extend(FIB_MATCH.to_ne_bytes());
    message.extend(8u16.to_ne_bytes());
    message.extend(DST.to_ne_bytes());
    message.extend(address.octets());
}

fn answer(message: &[u8], number: u32) -> Answer {
    assert_eq!(word(message, 8), number, "answers come in the order of questions");
    if half(message, 4) == ERROR {
        return Answer::Refused(-(word(message, HEAD) as i32));
    }
    let length = word(message, 0) as usize;
    let mut hops = BTreeSet::new();
    attributes(&message[HEAD + ROUTE..length], &mut |kind, value| match kind {
        GATEWAY => drop(hops.insert(hop(value))),
        MULTIPATH => {
            let mut rest = value;
            while rest.len() >= NEXT_HOP {
                let length = usize::from(half(rest, 0));
                attributes(&rest[NEXT_HOP..length], &mut |kind, value| {
                    if kind == GATEWAY {
                        hops.insert(hop(value));
                    }
                });
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
            }
        }
        _ => {}
    });
    Answer::Route { bits: message[HEAD + 1], hops }
}

fn attributes(mut rest: &[u8], each: &mut dyn FnMut(u16, &[u8])) {
    while rest.len() >= 4 {
        let length = usize::from(half(rest, 0));
        each(half(rest, 2), &rest[4..length]);
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
}

fn hop(address: &[u8]) -> u16 {
    let address = u32::from_be_bytes(address.try_into().expect("IPv4"));
    (address - u32::from(gateway(0))) as u16
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn run(args: &str) {
    let done = Command::new("ip").args(args.split(' ')).output().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {args}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Network namespace; its drop removes it.
struct Space(String);

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}
