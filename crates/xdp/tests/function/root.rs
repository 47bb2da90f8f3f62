//! Tests of the root program: one element has the switch program and functions, and dispatches packets to them.

use std::net::{Ipv4Addr, SocketAddrV4};

use pathcall_conformance::frame::bare;
use pathcall_conformance::generate::CLONES;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::Program;
use pathcall_p4::{Input, Sources, compile};
use pathcall_program::{Endpoint, InstalledApplication, Size};
use pathcall_wire::{Base, BaseRepr, FrameKind, MapFlags, MapRepr};
use pathcall_xdp::function::{Config, Error, PacketRule, Root, XdpFunction};
use pathcall_xdp::{KernelSwitch, Packet};

const ELEMENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7702);
const WORKER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 10), 4000);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 12), 4000);
const SIZE: Size = Size { rows: 8, lanes: 64, slots: 2 };
const GAID: u32 = 7;
const SLOW_PORT: u16 = 7703;
const DROP: u32 = 1;
const PASS: u32 = 2;
const OUT: u32 = 3;

/// Program that returns packets to their sender, and writes a mark at the source address.
fn reflector(mark: u8) -> Program {
    let text = format!(
        "#include <core.p4>\n#include <v1model.p4>\n\
         header ethernet_t {{ bit<48> dst; bit<48> src; bit<16> type; }}\n\
         struct headers {{ ethernet_t ethernet; }} struct metadata {{ }}\n\
         parser P(packet_in p, out headers hdr, inout metadata md, inout standard_metadata_t sm) {{\n\
             state start {{ p.extract(hdr.ethernet); transition accept; }} }}\n\
         control V(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control I(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{\n\
             hdr.ethernet.dst = hdr.ethernet.src; hdr.ethernet.src = {mark}; sm.egress_spec = sm.ingress_port; }} }}\n\
         control E(inout headers hdr, inout metadata md, inout standard_metadata_t sm) {{ apply {{ }} }}\n\
         control C(inout headers hdr, inout metadata md) {{ apply {{ }} }}\n\
         control D(packet_out p, in headers hdr) {{ apply {{ p.emit(hdr.ethernet); }} }}\n\
         V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
    );
    let mut sources = Sources::default();
    compile(&mut sources, Input::Text { name: "reflector.p4".into(), text }).expect("a program")
}

/// Switch program with an application.
fn switch(config: &pathcall_xdp::Config) -> Result<KernelSwitch, pathcall_xdp::Error> {
    let mut kernel = KernelSwitch::load(config)?;
    kernel.set_element_address(*ELEMENT.ip())?;
    let (row_base, lane_base) = (0, 0);
    kernel.install(&InstalledApplication { gaid: GAID, epoch: 1, owner: 2, row_base, rows: 8, lane_base, width: 8 })?;
    for (endpoint, slots, at) in [(1, 2, WORKER), (2, 0, SERVER)] {
        kernel.set_endpoint(&Endpoint { endpoint, incarnation: 1, gaid: GAID, slot_base: 0, slots }, at)?;
    }
    Ok(kernel)
}

/// Frame of a worker that acquires a lock.
fn frame() -> Vec<u8> {
    let base = BaseRepr {
        gaid: GAID,
        epoch: 1,
        src: 1,
        src_incarnation: 1,
        dst: 2,
        dst_incarnation: 1,
        ..BaseRepr::new(FrameKind::MapData)
    };
    bare(&base, &MapRepr { flags: MapFlags::COUNT, threshold: 1, tag: 5, ..MapRepr::default() })
}

fn load(inlined: bool) -> Result<(KernelSwitch, XdpFunction, XdpFunction, Root), Error> {
    let config = pathcall_xdp::Config {
        size: SIZE,
        clones: CLONES,
        data_port: ELEMENT.port(),
        slow_port: SLOW_PORT,
        routed: false,
        inlined,
    };
    let testing = Config { testing: true, local_port: None, storage: None };
    let kernel = switch(&config)?;
    let by_port = XdpFunction::load(&reflector(1), &testing)?;
    let by_type = XdpFunction::load(&reflector(2), &testing)?;
    let mut root = Root::load()?;
    root.carry_switch(&kernel, &config)?;
    root.carry(&by_port, &[PacketRule::UdpPort(9000)])?;
    root.carry(&by_type, &[PacketRule::EtherType(0x88b5)])?;
    Ok((kernel, by_port, by_type, root))
}

#[test]
fn element_dispatches_to_map_and_functions() {
    let Some((kernel, _by_port, _by_type, mut root)) = super::permitted(load(false)) else { return };
    let marked = |(action, packet): (u32, Vec<u8>)| (action, packet[11]);

    // A frame goes to the switch program, with the same result as without the root program.
    let mut packet = Vec::new();
    Packet { from: WORKER, to: ELEMENT, congested: false }.emit(&frame(), &mut packet);
    let before = kernel.counters().expect("counters").counters;
    let (action, out) = root.run(&packet).expect("run");
    let after = kernel.counters().expect("counters").counters;
    assert_eq!((action, after.frames_in - before.frames_in, after.frames_out - before.frames_out), (OUT, 1, 1));
    assert_eq!(Packet::parse(&out).expect("a frame").0.from, ELEMENT);

    // UDP to the port of one function, and an Ethernet frame of the other function's type.
    Packet { from: WORKER, to: SocketAddrV4::new(*SERVER.ip(), 9000), congested: false }.emit(b"data", &mut packet);
    assert_eq!(marked(root.run(&packet).expect("run")), (OUT, 1));
    let mut other = packet.clone();
    other[12..14].copy_from_slice(&[0x88, 0xb5]);
    assert_eq!(marked(root.run(&other).expect("run")), (OUT, 2));

    // All other packets go to the kernel's stack, until a function takes them.
    Packet { from: WORKER, to: SocketAddrV4::new(*SERVER.ip(), 9001), congested: false }.emit(b"data", &mut packet);
    assert_eq!(root.run(&packet).expect("run").0, PASS);
    let _rest = carry_rest(&mut root, 3);
    assert_eq!(marked(root.run(&packet).expect("run")), (OUT, 3));
    assert_eq!(kernel.counters().expect("counters").counters, after, "no packet for the switch program");

    // The interpreter does the same as the reflector alone.
    let mut reference = Interpreter::new(&reflector(3)).expect("a program");
    let mut expected = Vec::new();
    pathcall_p4::exec::Execution::process(&mut reference, 0, 0, &packet, &mut |output| {
        if let pathcall_p4::exec::Output::Packet { bytes, .. } = output {
            expected = bytes.to_vec();
        }
    });
    assert_eq!(root.run(&packet).expect("run").1, expected);
}

/// Packet to a host.
fn packet(to: SocketAddrV4, frame: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    Packet { from: WORKER, to, congested: false }.emit(frame, &mut packet);
    packet
}

/// Adds a function that gets all other packets, and leaves this mark.
fn carry_rest(root: &mut Root, mark: u8) -> XdpFunction {
    let testing = Config { testing: true, local_port: None, storage: None };
    let rest = XdpFunction::load(&reflector(mark), &testing).expect("load was permitted before");
    root.carry(&rest, &[PacketRule::All]).expect("room");
    rest
}

#[test]
fn packets_between_hosts_go_to_function_on_any_port() {
    let Some((kernel, _by_port, _by_type, mut root)) = super::permitted(load(false)) else { return };
    let _rest = carry_rest(&mut root, 3);
    let ran = |packet: &[u8]| root.run(packet).map(|(action, packet)| (action, packet[11])).expect("run");
    for port in [ELEMENT.port(), SLOW_PORT] {
        assert_eq!(ran(&packet(SocketAddrV4::new(*SERVER.ip(), port), &frame())), (OUT, 3), "port {port}");
    }
    assert_eq!(ran(&packet(SERVER, &frame())), (OUT, 3), "a frame in overlay mode");
    assert_eq!(kernel.counters().expect("counters").counters.frames_in, 0);

    // The slow port of the element accepts no packets from others, in any form; its first port accepts all.
    let mut up = packet(SocketAddrV4::new(*ELEMENT.ip(), SLOW_PORT), &frame());
    assert_eq!(ran(&up).0, DROP);
    up[20] = 0x20;
    assert_eq!(ran(&up).0, DROP, "a first fragment");
    up[37] = ELEMENT.port() as u8;
    assert_eq!(ran(&up).0, PASS, "a later fragment, to be reassembled");
    assert_eq!(ran(&packet(SocketAddrV4::new(*ELEMENT.ip(), 53), b"data")), (OUT, 3), "another port");
}

#[test]
fn inline_element_passes_unknown_frames_to_function() {
    let Some((kernel, _by_port, _by_type, mut root)) = super::permitted(load(true)) else { return };
    let _rest = carry_rest(&mut root, 3);
    let ran = |packet: &[u8]| root.run(packet).map(|(action, packet)| (action, packet[11])).expect("run");
    let mut unknown = frame();
    Base::new_checked(&mut unknown[..]).expect("our own").set_gaid(99);
    let elsewhere = |port| SocketAddrV4::new(*SERVER.ip(), port);
    assert_eq!(ran(&packet(elsewhere(9001), &unknown)), (OUT, 3));
    assert_eq!(ran(&packet(SERVER, &unknown)), (OUT, 3), "unknown application");
    assert_eq!(ran(&packet(elsewhere(9000), &frame())), (OUT, 1), "address of no endpoint");
    assert_eq!(kernel.counters().expect("counters").counters.frames_in, 0);

    let (action, answer) = root.run(&packet(SERVER, &frame())).expect("run");
    assert_eq!((action, Packet::parse(&answer).expect("a frame").0.from), (OUT, SERVER), "processed in inline mode");
    assert_eq!(kernel.counters().expect("counters").passing, 1);
}
