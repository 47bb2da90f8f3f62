//! Garbage for the ports of controller and element.
//!
//! Both trust their network (`SECURITY.md`): valid requests are executed. Invalid ones are refused, and the services
//! still answer afterwards.

use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::{
    ElementApplication, EndpointEntry, FollowNodesRequest, HeldGrant, InstallApplicationRequest, InstallPoolRequest,
    JoinPoolRequest, LookupRequest, NodeEntry, ReadRegistersRequest, RegisterApplicationRequest,
    RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointRequest, RemoveEndpointsRequest, RemoveRequest,
    ResetRegistersRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use rand::RngExt;
use rand::rngs::StdRng;

use super::attack::{Attack, Hostile, long_text, odd_number};

/// Application id that is not registered.
const NOBODYS: u32 = 0xdead_0000;

/// Address without a host.
fn unreachable_address(random: &mut StdRng) -> String {
    let wrong = ["", "here", "127.0.0.1", "127.0.0.1:0", "0.0.0.0:7", ":::1", "127.0.0.1:99999"];
    match random.random_range(0..=wrong.len()) {
        at if at < wrong.len() => wrong[at].into(),
        _ => long_text(random),
    }
}

impl Hostile<'_> {
    pub(super) async fn controller(&mut self) {
        let url = self.network.controller.url();
        let mut client = ControllerClient::connect(url).await.expect("connection to the service");
        // Each request has at least one lie: a correct one would be registered.
        let lies: &[fn(&mut RegisterApplicationRequest, &mut StdRng)] = &[
            |register, _| register.name = String::new(),
            |register, random| register.name = long_text(random),
            |register, _| register.name = "T-WORDS".into(),
            |register, _| register.width = 0,
            |register, random| register.width = (1 << 16) | odd_number(random),
            |register, random| register.data_address = unreachable_address(random),
            |register, random| register.service_address = long_text(random),
            |register, _| register.silent_elements = vec![7; 10_000],
            |register, _| register.held = Some(HeldGrant { epoch: u32::MAX, ..HeldGrant::default() }),
        ];
        let address = "127.0.0.1:9".to_owned();
        let truth = RegisterApplicationRequest {
            name: "T-HOSTILE".into(),
            width: 64,
            rows: 1,
            data_address: address.clone(),
            incarnation: 7,
            ..RegisterApplicationRequest::default()
        };
        for request in self.lies(&truth, lies) {
            let outcome = client.register_application(request).await;
            self.refused(Attack::Controller, "an application", outcome);
        }
        let lies: &[fn(&mut RegisterElementRequest, &mut StdRng)] = &[
            |register, random| register.data_address = unreachable_address(random),
            |register, random| register.control_address = unreachable_address(random),
            |register, random| register.rack = long_text(random),
        ];
        let truth = RegisterElementRequest {
            data_address: address.clone(),
            control_address: "http://127.0.0.1:9".into(),
            ..Default::default()
        };
        for request in self.lies(&truth, lies) {
            let outcome =
                client.register_element(RegisterElementRequest { rows: odd_number(&mut self.random), ..request }).await;
            self.refused(Attack::Controller, "an element", outcome);
        }
        let lies: &[fn(&mut JoinPoolRequest, &mut StdRng)] = &[
            |join, _| join.name = String::new(),
            |join, random| join.name = long_text(random),
            |join, random| join.data_address = unreachable_address(random),
            |join, random| join.service_address = long_text(random),
            |join, random| join.rack = long_text(random),
        ];
        let truth =
            JoinPoolRequest { name: "hostile".into(), data_address: address.clone(), ..JoinPoolRequest::default() };
        for request in self.lies(&truth, lies) {
            let outcome = client.join_pool(request).await;
            self.refused(Attack::Controller, "a pool", outcome);
        }
        for turn in 0..8 {
            let random = &mut self.random;
            let gaid = NOBODYS | turn;
            let caller = RegisterEndpointRequest {
                gaid,
                incarnation: odd_number(random),
                data_address: address.clone(),
                flows: odd_number(random),
                server: odd_number(random),
                endpoint: odd_number(random),
                rack: long_text(random),
            };
            let known = self.insider.grant.gaid;
            let unreachable_address =
                RegisterEndpointRequest { gaid: known, data_address: unreachable_address(random), ..caller.clone() };
            let release =
                ReleaseEndpointRequest { gaid, endpoint: self.insider.grant.endpoint, server: odd_number(random) };
            let node = NodeEntry {
                name: [String::new(), long_text(random)][turn as usize % 2].clone(),
                address: address.clone(),
            };
            let (name, lookup) = (long_text(random), long_text(random));
            let elsewhere = NodeEntry { name: "hostile".into(), address: super::control::unreachable_address(random) };
            for caller in [caller, unreachable_address] {
                let outcome = client.register_endpoint(caller).await;
                self.refused(Attack::Controller, "a caller", outcome);
            }
            let outcome = client.release_endpoint(release).await;
            self.refused(Attack::Controller, "a leave", outcome);
            for node in [node, elsewhere, NodeEntry { name, address: String::new() }] {
                let outcome = client.follow_nodes(FollowNodesRequest { node: Some(node), authenticate: false }).await;
                self.refused(Attack::Controller, "a node", outcome);
            }
            let outcome = client.lookup(LookupRequest { name: lookup }).await;
            self.refused(Attack::Controller, "a name", outcome);
        }
        self.answers().await;
    }

    pub(super) async fn element(&mut self) {
        let url = format!("http://{}", self.network.element.control_addr());
        let mut client = ElementClient::connect(url).await.expect("connection to the service");
        let boot_id = self.network.element.boot_id();
        // Changes for another start, and oversized changes for this one.
        for right in [false, true] {
            let boot_id = if right { boot_id } else { boot_id ^ (1 << self.random.random_range(0..64)) };
            let kind = Attack::Element;
            let lies: &[fn(&mut ElementApplication, &mut StdRng)] = &[
                |application, random| application.row_base = u32::MAX - odd_number(random) % 16,
                |application, _| application.rows = u32::MAX,
                |application, _| (application.row_base, application.rows) = (u32::MAX, u32::MAX),
                |application, _| application.lane_base = u32::MAX,
                |application, _| application.width = u32::MAX,
                // Memory that other applications have.
                |application, _| (application.row_base, application.lane_base, application.rows) = (0, 0, 4096),
            ];
            let truth = ElementApplication { gaid: NOBODYS, rows: 1, width: 64, ..ElementApplication::default() };
            for application in self.lies(&truth, lies) {
                let outcome = client
                    .install_application(InstallApplicationRequest { boot_id, application: Some(application) })
                    .await;
                self.refused(kind, application, outcome);
            }
            let outcome = client.install_application(InstallApplicationRequest { boot_id, application: None }).await;
            self.refused(kind, "nothing", outcome);
            let servers = vec![7; 10_000];
            let outcome =
                client.install_pool(InstallPoolRequest { boot_id, gaid: NOBODYS, servers, ..Default::default() }).await;
            self.refused(kind, "a pool", outcome);
            let outcome = client.remove(RemoveRequest { boot_id, gaid: NOBODYS }).await;
            self.refused(kind, "a removal", outcome);
            let outcome = client.reset_registers(ResetRegistersRequest { boot_id, gaid: NOBODYS }).await;
            self.refused(kind, "a reset", outcome);
            let endpoints = vec![odd_number(&mut self.random); 10_000];
            let outcome = client
                .set_multicast_group(SetMulticastGroupRequest { boot_id, gaid: NOBODYS, endpoints: endpoints.clone() })
                .await;
            self.refused(kind, "a group", outcome);
            let lies: &[fn(&mut EndpointEntry, &mut StdRng)] = &[
                |entry, random| entry.data_address = unreachable_address(random),
                |entry, random| (entry.slot_base, entry.slots) = (u32::MAX - odd_number(random) % 16, 64),
                |entry, random| (entry.slot_base, entry.slots) = (odd_number(random), u32::MAX),
            ];
            let truth =
                EndpointEntry { gaid: NOBODYS, endpoint: 7, data_address: "127.0.0.1:9".into(), ..Default::default() };
            for entry in self.lies(&truth, lies) {
                let outcome = client.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![entry; 100] }).await;
                self.refused(kind, "endpoints", outcome);
            }
            // Unknown endpoints are ignored.
            let endpoints = (0..100_000).map(|nth| NOBODYS | nth).collect();
            let outcome = client.remove_endpoints(RemoveEndpointsRequest { boot_id, endpoints }).await;
            if !right {
                self.refused(kind, "removals", outcome);
            }
        }
        let known = self.insider.grant.gaid;
        for (gaid, row, rows) in
            [(NOBODYS, 0, 1), (known, u32::MAX, 1), (known, 0, u32::MAX), (known, u32::MAX, u32::MAX)]
        {
            let outcome = client.read_registers(ReadRegistersRequest { gaid, row, rows }).await;
            self.refused(Attack::Element, (gaid, row, rows), outcome);
        }
        self.answers().await;
    }
}
