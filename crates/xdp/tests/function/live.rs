//! Test of a function at interfaces: two hosts communicate through an element that forwards between its ports.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{self, Command};
use std::time::Duration;

use pathcall_p4::exec::Execution;
use pathcall_p4::ir::{CounterId, Program};
use pathcall_p4::{Input, Sources, compile};
use pathcall_xdp::AttachMode;
use pathcall_xdp::function::{Config, Error, LossReason, XdpFunction};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Port that stands for the host itself.
const LOCAL: u16 = 7;
/// Longest wait for a packet.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Program that forwards each packet to the port that `to` computes, and counts packets by ingress port.
fn forwarder(to: &str) -> Program {
    let text = format!(
        "#include <core.p4>\n#include <v1model.p4>\n\
         header ethernet_t {{ bit<48> dst; bit<48> src; bit<16> type; }}\n\
         struct headers {{ ethernet_t ethernet; }} struct metadata {{ }}\n\
         parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{\n\
             state start {{ p.extract(hdr.ethernet); transition accept; }} }}\n\
         control V(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{\n\
             counter(2, CounterType.packets_and_bytes) came;\n\
             apply {{ came.count((bit<32>)sm.ingress_port); sm.egress_spec = {to}; }} }}\n\
         control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{ }} }}\n\
         control C(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr.ethernet); }} }}\n\
         V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
    );
    compile(&mut Sources::default(), Input::Text { name: "forwarder.p4".into(), text }).expect("a program")
}

/// Network namespaces of this process; their drop removes them.
struct Spaces(String);

impl Spaces {
    fn name(&self, which: &str) -> String {
        format!("{}{which}", self.0)
    }

    /// Moves this thread into a namespace.
    fn enter(&self, which: &str) {
        let namespace = File::open(format!("/run/netns/{}", self.name(which))).expect("a namespace");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
    }

    /// Element `e` between the hosts `a` and `b`.
    fn up() -> Self {
        let spaces = Self(format!("pc-fxdp-{}-", process::id()));
        let element = spaces.name("e");
        run("ip", &format!("netns add {element}"));
        for (i, host) in ["a", "b"].into_iter().enumerate() {
            let (name, mac) = (spaces.name(host), format!("02:00:00:00:01:0{i}"));
            run("ip", &format!("netns add {name}"));
            run("ip", &format!("-n {element} link add e{host} type veth peer name eth0 address {mac} netns {name}"));
            run("ip", &format!("-n {element} link set e{host} up"));
            run("ip", &format!("-n {name} link set eth0 up"));
            run("ip", &format!("-n {name} addr add 10.9.0.{}/24 dev eth0", i + 1));
            // With checksum offload packets would have no checksum, because a veth has no device that adds it.
            run("ip", &format!("netns exec {name} ethtool -K eth0 tx off"));
        }
        spaces
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for which in ["a", "b", "e"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(which)]).output();
        }
    }
}

fn run(program: &str, args: &str) {
    let done =
        Command::new(program).args(args.split(' ')).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&done.stderr));
}

fn load(to: &str) -> Result<XdpFunction, Error> {
    XdpFunction::load(&forwarder(to), &Config { testing: false, local_port: Some(LOCAL), storage: None })
}

#[test]
fn hosts_communicate_through_function() {
    let Some(mut wire) = super::permitted(load("sm.ingress_port ^ 1")) else { return };
    let spaces = Spaces::up();
    spaces.enter("e");
    for (port, interface) in [(0, "ea"), (1, "eb")] {
        assert_eq!(wire.attach(interface, port).expect("an interface"), AttachMode::Native);
    }
    // A veth accepts packets from XDP only if its peer has a program.
    let mut sockets = Vec::new();
    let mut passing = Vec::new();
    for (i, host) in ["a", "b"].into_iter().enumerate() {
        spaces.enter(host);
        let mut pass = load(&LOCAL.to_string()).expect("permitted before");
        pass.attach("eth0", 0).expect("an interface");
        passing.push(pass);
        let socket = UdpSocket::bind(("10.9.0.".to_owned() + &(i + 1).to_string(), 4000)).expect("an address");
        socket.set_read_timeout(Some(WAIT_MAX)).expect("a time");
        sockets.push(socket);
    }
    let mut buffer = [0; 64];
    for round in 0..10_u8 {
        sockets[0].send_to(&[round; 20], "10.9.0.2:4000").expect("sent");
        let (len, from) = sockets[1].recv_from(&mut buffer).expect("a packet through the element");
        assert_eq!((&buffer[..len], from.to_string()), (&[round; 20][..], "10.9.0.1:4000".to_owned()));
        sockets[1].send_to(&[round; 30], from).expect("sent");
        assert_eq!(sockets[0].recv(&mut buffer).expect("the answer"), 30);
    }
    // In each direction: ten packets, and neighbour discovery.
    let [out, back] = [0, 1].map(|port| wire.counter(CounterId(0), port).packets);
    assert!(out >= 10 && back >= 10, "{out} packets by port 0, {back} by port 1");
    for lost in LossReason::ALL {
        assert_eq!(wire.lost(lost).expect("a counter"), 0, "{lost:?}");
    }
}
