//! Tests of the access table against the running services: each RPC, as each role, for an application that the
//! configuration names and for another one.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_auth::access::rpcs;
use pathcall_auth::{
    AccessGrant, AccessTable, ConnectTarget, ExpectedPeer, Identity, PartyRole, Pattern, Security, TlsIncoming,
};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{
    AdmitRequest, ApplyCallRequest, CancelSumRequest, CarryFramesRequest, ChangeGroupRequest, CountersRequest,
    FollowNodesRequest, FollowPoolRequest, FunctionStatusRequest, InstallApplicationRequest, InstallPoolRequest,
    JoinPoolRequest, JoinRequest, LastSeenRequest, LookupNodeRequest, LookupRequest, NodeEntry, NumberKeysRequest,
    OpenJournalRequest, ReadRegistersRequest, RegisterApplicationRequest, RegisterElementRequest,
    RegisterEndpointRequest, ReleaseEndpointRequest, RemoveEndpointsRequest, RemoveRequest, ResetRegistersRequest,
    ServerHello, ServerReport, SetEndpointsRequest, SetMulticastGroupRequest, StatusRequest, server_report,
};
use pathcall_rpc::Layer;
use pathcall_test_support::HANG;
use pathcall_test_support::certificates::Authority;
use pathcall_test_support::service::TestHandlers;
use pathcall_test_support::store::STORE;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::training_server::TrainingServer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::iter;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Name of the callers under test; other holders of their roles keep the services running.
const NAME: &str = "asked";
/// Application that the grants name, and another one.
const RIGHT: &str = "T-SUM";
const WRONG: &str = "T-WORDS";
/// Pool of the server.
const POOL: &str = "shelves";
/// RPCs that belong to no application.
const WITHOUT_APPLICATION: &[&str] = &[
    "Controller/RegisterElement",
    "Controller/Status",
    "Peer/LookupNode",
    "Function/ChangeGroup",
    "Function/FunctionStatus",
];

/// Configuration that grants each role its calls for one application, to the callers under test.
pub(crate) fn access() -> AccessTable {
    PartyRole::ALL.into_iter().fold(AccessTable::default(), |access, role| {
        let right = [RIGHT, POOL].map(Pattern::new);
        let asked = AccessGrant::new(role).name(Pattern::new(NAME)).applications(right);
        let none = AccessGrant::new(role).name(Pattern::new("apart")).applications([Pattern::new("none")]);
        access.grant(asked).grant(none).grant(AccessGrant::new(role).name(Pattern::new("kept")))
    })
}

/// Credentials of a party that keeps a service running.
pub(crate) fn service_credentials(authority: &Authority, role: PartyRole) -> Security {
    Security::new(authority.credentials(role, "kept"), access())
}

fn is_of_an_application(rpc: &str) -> bool {
    !rpc.starts_with("Element/") && !WITHOUT_APPLICATION.contains(&rpc)
}

/// Calls each RPC of the services at `url` and checks the outcome against the table.
pub(crate) async fn call_all_rpcs(authority: &Authority, service: &str, url: &str, ids: [u32; 2]) -> u32 {
    let mut granted = 0;
    for rpc in rpcs().filter(|rpc| rpc.starts_with(service)) {
        for role in PartyRole::ALL {
            for (application, id) in [(RIGHT, ids[0]), (WRONG, ids[1])] {
                // The server under test has the followed pool, so a caller without access needs another name.
                let name = if rpc == "Peer/FollowPool" && application == WRONG { "apart" } else { NAME };
                let credentials = authority.credentials(role, name);
                let peer = ExpectedPeer::new(PartyRole::Server).or(if service == "Peer/" {
                    PartyRole::Server
                } else {
                    PartyRole::Element
                });
                let peer = if service == "Controller/" { ExpectedPeer::new(PartyRole::Controller) } else { peer };
                let channel = ConnectTarget::new(url, Some(&credentials), peer).unwrap().connect_lazy();
                let printed = timeout(HANG, call(rpc, channel, application, id)).await.expect("an answer");
                let about = is_of_an_application(rpc).then_some(if name == NAME { application } else { POOL });
                let allowed = access().allows(&Identity::new(role, name), rpc, about);
                // A caller that may list nodes is not registered as one.
                let allowed = allowed && (rpc != "Controller/FollowNodes" || role == PartyRole::Server);
                let needed = AccessTable::default().allows(&Identity::new(role, name), rpc, None);
                assert!(
                    !allowed || needed && (application == RIGHT || !is_of_an_application(rpc)),
                    "{rpc} {role} {application}"
                );
                granted += u32::from(allowed);
                let refused = printed.as_ref().err().filter(|status| status.message().contains("may not"));
                assert_eq!(refused.is_none(), allowed, "{rpc} as {role} for {application}: {printed:?}");
                assert!(refused.is_none_or(|status| status.code() == Code::PermissionDenied), "{printed:?}");
            }
        }
    }
    granted
}

/// Makes one call for an application, with all other fields empty.
async fn call(rpc: &str, channel: Channel, application: &str, gaid: u32) -> Result<(), Status> {
    let (mut controller, mut element) = (ControllerClient::new(channel.clone()), ElementClient::new(channel.clone()));
    let (mut peer, mut function) = (PeerClient::new(channel.clone()), FunctionClient::new(channel));
    let (application, name) = (application.to_owned(), application.to_owned());
    match rpc {
        "Controller/RegisterApplication" => {
            controller.register_application(RegisterApplicationRequest { name, ..Default::default() }).await.map(drop)
        }
        "Controller/RegisterEndpoint" => {
            controller.register_endpoint(RegisterEndpointRequest { gaid, ..Default::default() }).await.map(drop)
        }
        "Controller/ReleaseEndpoint" => {
            controller.release_endpoint(ReleaseEndpointRequest { gaid, ..Default::default() }).await.map(drop)
        }
        "Controller/RegisterElement" => controller.register_element(RegisterElementRequest::default()).await.map(drop),
        "Controller/Lookup" => controller.lookup(LookupRequest { name }).await.map(drop),
        "Controller/Status" => controller.status(StatusRequest {}).await.map(drop),
        "Controller/FollowNodes" => {
            let node = Some(NodeEntry { name, address: "127.0.0.1:1".into() });
            controller.follow_nodes(FollowNodesRequest { node, authenticate: false }).await.map(drop)
        }
        "Controller/JoinPool" => controller.join_pool(JoinPoolRequest { name, ..Default::default() }).await.map(drop),
        "Element/InstallApplication" => {
            element.install_application(InstallApplicationRequest::default()).await.map(drop)
        }
        "Element/Remove" => element.remove(RemoveRequest::default()).await.map(drop),
        "Element/SetEndpoints" => element.set_endpoints(SetEndpointsRequest::default()).await.map(drop),
        "Element/RemoveEndpoints" => element.remove_endpoints(RemoveEndpointsRequest::default()).await.map(drop),
        "Element/SetMulticastGroup" => element.set_multicast_group(SetMulticastGroupRequest::default()).await.map(drop),
        "Element/InstallPool" => element.install_pool(InstallPoolRequest::default()).await.map(drop),
        "Element/ReadRegisters" => element.read_registers(ReadRegistersRequest::default()).await.map(drop),
        "Element/ResetRegisters" => element.reset_registers(ResetRegistersRequest::default()).await.map(drop),
        "Element/Counters" => element.counters(CountersRequest {}).await.map(drop),
        "Element/LastSeen" => element.last_seen(LastSeenRequest {}).await.map(drop),
        "Peer/Join" => peer.join(JoinRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Admit" => peer.admit(AdmitRequest { application, ..Default::default() }).await.map(drop),
        "Peer/CancelSum" => peer.cancel_sum(CancelSumRequest { application, ..Default::default() }).await.map(drop),
        "Peer/NumberKeys" => peer.number_keys(NumberKeysRequest { application, ..Default::default() }).await.map(drop),
        "Peer/CarryFrames" => {
            peer.carry_frames(iter([CarryFramesRequest { application, ..Default::default() }])).await.map(drop)
        }
        "Peer/OpenJournal" => {
            peer.open_journal(OpenJournalRequest { application, ..Default::default() }).await.map(drop)
        }
        "Peer/ApplyCall" => peer.apply_call(ApplyCallRequest { application, ..Default::default() }).await.map(drop),
        "Peer/LookupNode" => peer.lookup_node(LookupNodeRequest::default()).await.map(drop),
        "Peer/FollowPool" => peer.follow_pool(FollowPoolRequest::default()).await.map(drop),
        "Function/Serve" => {
            let report = Some(server_report::Report::Hello(ServerHello { name, ..Default::default() }));
            function.serve(iter([ServerReport { report }])).await.map(drop)
        }
        "Function/ChangeGroup" => function.change_group(ChangeGroupRequest::default()).await.map(drop),
        "Function/FunctionStatus" => function.function_status(FunctionStatusRequest {}).await.map(drop),
        _ => panic!("{rpc} is missing in this test"),
    }
}

#[test]
fn access_table_lists_every_rpc() {
    let mut contract = BTreeSet::new();
    for text in
        [include_str!("../../../proto/pathcall/control.proto"), include_str!("../../../proto/pathcall/function.proto")]
    {
        let mut service = "";
        for line in text.lines() {
            let word = |rest: &'static str| rest.split(['(', ' ']).next().unwrap();
            if let Some(rest) = line.strip_prefix("service ") {
                service = word(rest);
            } else if let Some(rest) = line.strip_prefix("  rpc ") {
                contract.insert(format!("{service}/{}", word(rest)));
            }
        }
    }
    assert_eq!(contract, rpcs().map(str::to_owned).collect());
}

#[tokio::test]
async fn role_can_call_exactly_its_granted_rpcs() {
    let authority = Authority::new();
    let free = "127.0.0.1:0".parse().unwrap();
    let listener = pathcall_control::bind(free).await.unwrap();
    let config = pathcall_control::Config::default().security(service_credentials(&authority, PartyRole::Controller));
    let controller = pathcall_control::serve(listener, config).await.unwrap();
    let config = pathcall_element::Config::default().data(free).control(free).controller(Some(controller.url()));
    let element =
        pathcall_element::run(config.security(service_credentials(&authority, PartyRole::Element))).await.unwrap();
    let mut known = element.registration();
    let registered = known.wait_for(|known| matches!(known, pathcall_element::Registration::Known { .. }));
    timeout(HANG, registered).await.expect("the element is registered").unwrap();

    let security = service_credentials(&authority, PartyRole::Server);
    let builder = Layer::builder(&PATHCALL).manifest(&STORE).pool(POOL).security(security.clone());
    let server = builder.controller(controller.url()).data_address(free).build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let incoming = TlsIncoming::new(listener, security.credentials().unwrap().clone());
    let services = tonic::transport::Server::builder()
        .layer(server.clone())
        .add_service(TrainingServer::new(TestHandlers(Default::default())));
    let mut serving = JoinSet::new();
    serving.spawn(services.serve_with_incoming(incoming));

    let operator = authority.credentials(PartyRole::Operator, "kept");
    let channel = ConnectTarget::new(&controller.url(), Some(&operator), ExpectedPeer::new(PartyRole::Controller))
        .unwrap()
        .connect_lazy();
    let mut ids = [0; 2];
    for (id, name) in ids.iter_mut().zip([RIGHT, WRONG]) {
        let found = ControllerClient::new(channel.clone()).lookup(LookupRequest { name: name.into() }).await;
        *id = found.unwrap().into_inner().gaid;
    }
    // Numbers counted by hand from the page: access only for the named caller, to the named application.
    assert_eq!(call_all_rpcs(&authority, "Controller/", &controller.url(), ids).await, 5 + 3 + 2 * 2 + 2);
    assert_eq!(call_all_rpcs(&authority, "Element/", element.control_url(), ids).await, 2 * (7 + 2 * 3));
    assert_eq!(call_all_rpcs(&authority, "Peer/", &url, ids).await, 2 * 8 + 2 * 2);
    for role in [PartyRole::Caller, PartyRole::Operator] {
        let target = ConnectTarget::new(
            &controller.url(),
            Some(&authority.credentials(role, NAME)),
            ExpectedPeer::new(PartyRole::Controller),
        );
        let mut looking = ControllerClient::new(target.unwrap().connect_lazy());
        looking.follow_nodes(FollowNodesRequest::default()).await.expect("the nodes can be listed");
    }
    element.shutdown().await;
    timeout(HANG + Duration::from_secs(1), controller.shutdown()).await.expect("shutdown in time");
}
