//! Test environment: an element on free loopback ports, with hosts that build frames by hand.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr};

use crate::{Config, Handle};
use pathcall_program::Size;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    CountersReply, CountersRequest, ElementApplication, EndpointEntry, InstallApplicationRequest, ReadRegistersRequest,
    SetEndpointsRequest, SetMulticastGroupRequest,
};
use pathcall_test_support::HANG;
use pathcall_wire::base::flip;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapFrame, MapRepr};
use tokio::net::UdpSocket;
use tokio::time::timeout;
use tonic::transport::Channel;

pub(crate) const GAID: u32 = 7;
pub(crate) const EPOCH: u32 = 3;
pub(crate) const SERVER: u32 = 10;
pub(crate) const WIDTH: usize = pathcall_wire::KEYED_WIDTH;
/// Index of the first keyed lane of a row: the bank of generation 1.
pub(crate) const BANK: usize = pathcall_wire::KEYED_LANES;
pub(crate) const ROWS: u32 = 16;
pub(crate) const SLOTS_EACH: u32 = 4;

/// Configuration for tests: free ports, little memory.
pub(crate) fn config() -> Config {
    let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let size = Size { rows: 64, lanes: 64 * WIDTH, slots: 64 };
    Config::default().data(free).control(free).size(size)
}

/// Element with one application installed.
pub(crate) struct ElementFixture {
    pub(crate) element: Handle,
    pub(crate) control: ElementClient<Channel>,
}

pub(crate) async fn fixture() -> ElementFixture {
    fixture_with(config()).await
}

pub(crate) async fn fixture_with(config: Config) -> ElementFixture {
    let element = crate::run(config).await.unwrap();
    let control = ElementClient::connect(format!("http://{}", element.control_addr())).await.unwrap();
    let mut fixture = ElementFixture { element, control };
    let boot_id = fixture.element.boot_id();
    fixture
        .control
        .install_application(InstallApplicationRequest { boot_id, application: Some(application()) })
        .await
        .unwrap();
    fixture
}

pub(crate) fn application() -> ElementApplication {
    let width = WIDTH as u32;
    let (row_base, lane_base, token_key) = (4, 64, None);
    ElementApplication { gaid: GAID, epoch: EPOCH, owner: SERVER, row_base, rows: ROWS, lane_base, width, token_key }
}

impl ElementFixture {
    /// Creates a host with its own slots and registers it with the element.
    pub(crate) async fn host(&mut self, endpoint: u32) -> Host {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.connect(self.element.data_addr()).await.unwrap();
        let slot_base = if endpoint == SERVER { 0 } else { (endpoint % SERVER) * SLOTS_EACH };
        let host = Host { socket, endpoint, incarnation: 1000 + endpoint, slot: slot_base };
        let entry = EndpointEntry {
            endpoint,
            incarnation: host.incarnation,
            data_address: host.socket.local_addr().unwrap().to_string(),
            gaid: GAID,
            slot_base,
            slots: if endpoint == SERVER { 0 } else { SLOTS_EACH },
        };
        let boot_id = self.element.boot_id();
        self.control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![entry] }).await.unwrap();
        host
    }

    pub(crate) async fn set_group(&mut self, endpoints: &[u32]) {
        let (boot_id, gaid, endpoints) = (self.element.boot_id(), GAID, endpoints.to_vec());
        self.control.set_multicast_group(SetMulticastGroupRequest { boot_id, gaid, endpoints }).await.unwrap();
    }

    /// Registers of one row.
    pub(crate) async fn row(&mut self, row: u32) -> Vec<i32> {
        let reply = self.control.read_registers(ReadRegistersRequest { gaid: GAID, row, rows: 1 }).await.unwrap();
        let reply = reply.into_inner();
        assert_eq!(reply.width as usize, WIDTH);
        reply.values
    }

    pub(crate) async fn counters(&mut self) -> CountersReply {
        self.control.counters(CountersRequest {}).await.unwrap().into_inner()
    }
}

/// Socket of a host, with its identity in frames.
pub(crate) struct Host {
    pub(crate) socket: UdpSocket,
    pub(crate) endpoint: u32,
    pub(crate) incarnation: u32,
    pub(crate) slot: u32,
}

impl Host {
    /// Base header of a frame from this host to another.
    pub(crate) fn base(&self, kind: FrameKind, to: &Host, seq: u32) -> BaseRepr {
        BaseRepr {
            gaid: GAID,
            epoch: EPOCH,
            src: self.endpoint,
            src_incarnation: self.incarnation,
            dst: to.endpoint,
            dst_incarnation: to.incarnation,
            slot: self.slot,
            seq,
            flags: flip(seq) | if self.endpoint == SERVER { Flags::FROM_SERVER } else { 0 },
            ..BaseRepr::new(kind)
        }
    }

    pub(crate) async fn send(&self, frame: &[u8]) {
        self.socket.send(frame).await.unwrap();
    }

    /// Receives the next frame.
    pub(crate) async fn receive(&self) -> MapFrame<Vec<u8>> {
        let mut bytes = vec![0; 65_536];
        let len = timeout(HANG, self.socket.recv(&mut bytes)).await.expect("a frame").unwrap();
        bytes.truncate(len);
        MapFrame::new_checked(bytes).unwrap()
    }
}

/// Keyed frame: `(row, value)` at each position, all marked.
pub(crate) fn keyed(base: BaseRepr, flags: u16, pairs: &[(u32, i32)]) -> Vec<u8> {
    let map = MapRepr { flags, lanes: pairs.len() as u16, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(flags, pairs.len(), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    for (i, &(row, value)) in pairs.iter().enumerate() {
        frame.set_keyed(i, row, value);
    }
    mark(&mut frame, pairs.len());
    bytes
}

/// Linear frame with these values, all marked.
pub(crate) fn linear(base: BaseRepr, map: MapRepr, values: &[i32]) -> Vec<u8> {
    let map = MapRepr { flags: map.flags | MapFlags::LINEAR, lanes: values.len() as u16, ..map };
    let mut bytes = vec![0; frame_len(map.flags, values.len(), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    for (lane, value) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).zip(values) {
        lane.copy_from_slice(&value.to_be_bytes());
    }
    mark(&mut frame, values.len());
    bytes
}

/// Linear lanes of a frame.
pub(crate) fn values(frame: &MapFrame<Vec<u8>>) -> Vec<i64> {
    (0..frame.lane_count()).map_while(|i| frame.linear(i)).collect()
}

fn mark(frame: &mut MapFrame<&mut [u8]>, lanes: usize) {
    for word in 0..lanes.div_ceil(32) {
        let marked = (lanes - word * 32).min(32);
        frame.set_bitmap(word, u32::MAX >> (32 - marked));
    }
}
