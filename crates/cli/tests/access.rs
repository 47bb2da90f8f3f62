//! The table of access, held against the running services: each RPC, as each role, for an application that the configuration
//! names and for another.

use std::collections::BTreeSet;
use std::time::Duration;

use pathcall_auth::access::rpcs;
use pathcall_auth::{Access, Grant, Identity, Incoming, Pattern, Peer, Role, Security, Target};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::element_client::ElementClient;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{
    AdmitRequest, ApplyRequest, CarryRequest, ChangeGroupRequest, CountersRequest, FollowPoolRequest,
    FunctionStatusRequest, GiveUpRequest, InstallPoolRequest, InstallRequest, JoinPoolRequest, JoinRequest,
    LastSeenRequest, LookupRequest, NameRequest, NodeEntry, NodeRequest, NodesRequest, OpenBookRequest,
    ReadRegistersRequest, RegisterApplicationRequest, RegisterElementRequest, RegisterEndpointRequest,
    ReleaseEndpointRequest, RemoveEndpointsRequest, RemoveRequest, ResetRegistersRequest, ServerHello, ServerWord,
    SetEndpointsRequest, SetGroupRequest, StatusRequest, server_word,
};
use pathcall_rpc::Server;
use pathcall_test_support::HANG;
use pathcall_test_support::certificates::Authority;
use pathcall_test_support::service::Handlers;
use pathcall_test_support::store::STORE;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::training_server::TrainingServer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::iter;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Those that the table is asked about; others of their roles keep the services running.
const NAME: &str = "asked";
/// The application that the grants name, and another.
const RIGHT: &str = "T-SUM";
const WRONG: &str = "T-WORDS";
/// The pool of the server.
const POOL: &str = "shelves";
/// RPCs that are for no one application.
const OF_NONE: &[&str] = &[
    "Controller/RegisterElement",
    "Controller/Status",
    "Peer/Node",
    "Function/ChangeGroup",
    "Function/FunctionStatus",
];

/// Each role may do what it needs: those who are asked about, for one application.
pub(crate) fn access() -> Access {
    Role::ALL.into_iter().fold(Access::default(), |access, role| {
        let right = [RIGHT, POOL].map(Pattern::new);
        let asked = Grant::new(role).name(Pattern::new(NAME)).applications(right);
        let none = Grant::new(role).name(Pattern::new("apart")).applications([Pattern::new("none")]);
        access.grant(asked).grant(none).grant(Grant::new(role).name(Pattern::new("kept")))
    })
}

/// Who keeps a service running.
pub(crate) fn keeper(authority: &Authority, role: Role) -> Security {
    Security::new(authority.credentials(role, "kept"), access())
}

fn is_of_an_application(rpc: &str) -> bool {
    !rpc.starts_with("Element/") && !OF_NONE.contains(&rpc)
}

/// What the services at `url` say to each RPC of theirs.
pub(crate) async fn ask_all(authority: &Authority, service: &str, url: &str, ids: [u32; 2]) -> u32 {
    let mut granted = 0;
    for rpc in rpcs().filter(|rpc| rpc.starts_with(service)) {
        for role in Role::ALL {
            for (application, id) in [(RIGHT, ids[0]), (WRONG, ids[1])] {
                // The pool that is followed is the server's: who may not is known by another name.
                let name = if rpc == "Peer/FollowPool" && application == WRONG { "apart" } else { NAME };
                let credentials = authority.credentials(role, name);
                let peer = Peer::new(Role::Server).or(if service == "Peer/" { Role::Server } else { Role::Element });
                let peer = if service == "Controller/" { Peer::new(Role::Controller) } else { peer };
                let channel = Target::new(url, Some(&credentials), peer).unwrap().connect_lazy();
                let said = timeout(HANG, call(rpc, channel, application, id)).await.expect("an answer");
                let about = is_of_an_application(rpc).then_some(if name == NAME { application } else { POOL });
                let allowed = access().allows(&Identity::new(role, name), rpc, about);
                // Who may look at the directory has no place in it.
                let allowed = allowed && (rpc != "Controller/Nodes" || role == Role::Server);
                let needed = Access::default().allows(&Identity::new(role, name), rpc, None);
                assert!(
                    !allowed || needed && (application == RIGHT || !is_of_an_application(rpc)),
                    "{rpc} {role} {application}"
                );
                granted += u32::from(allowed);
                let refused = said.as_ref().err().filter(|status| status.message().contains("may not"));
                assert_eq!(refused.is_none(), allowed, "{rpc} as {role} for {application}: {said:?}");
                assert!(refused.is_none_or(|status| status.code() == Code::PermissionDenied), "{said:?}");
            }
        }
    }
    granted
}

/// One call, that is nothing else but for an application.
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
        "Controller/Nodes" => {
            let node = Some(NodeEntry { name, address: "127.0.0.1:1".into() });
            controller.nodes(NodesRequest { node, authenticate: false }).await.map(drop)
        }
        "Controller/JoinPool" => controller.join_pool(JoinPoolRequest { name, ..Default::default() }).await.map(drop),
        "Element/Install" => element.install(InstallRequest::default()).await.map(drop),
        "Element/Remove" => element.remove(RemoveRequest::default()).await.map(drop),
        "Element/SetEndpoints" => element.set_endpoints(SetEndpointsRequest::default()).await.map(drop),
        "Element/RemoveEndpoints" => element.remove_endpoints(RemoveEndpointsRequest::default()).await.map(drop),
        "Element/SetGroup" => element.set_group(SetGroupRequest::default()).await.map(drop),
        "Element/InstallPool" => element.install_pool(InstallPoolRequest::default()).await.map(drop),
        "Element/ReadRegisters" => element.read_registers(ReadRegistersRequest::default()).await.map(drop),
        "Element/ResetRegisters" => element.reset_registers(ResetRegistersRequest::default()).await.map(drop),
        "Element/Counters" => element.counters(CountersRequest {}).await.map(drop),
        "Element/LastSeen" => element.last_seen(LastSeenRequest {}).await.map(drop),
        "Peer/Join" => peer.join(JoinRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Admit" => peer.admit(AdmitRequest { application, ..Default::default() }).await.map(drop),
        "Peer/GiveUp" => peer.give_up(GiveUpRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Name" => peer.name(NameRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Carry" => peer.carry(iter([CarryRequest { application, ..Default::default() }])).await.map(drop),
        "Peer/OpenBook" => peer.open_book(OpenBookRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Apply" => peer.apply(ApplyRequest { application, ..Default::default() }).await.map(drop),
        "Peer/Node" => peer.node(NodeRequest::default()).await.map(drop),
        "Peer/FollowPool" => peer.follow_pool(FollowPoolRequest::default()).await.map(drop),
        "Function/Serve" => {
            let word = Some(server_word::Word::Hello(ServerHello { name, ..Default::default() }));
            function.serve(iter([ServerWord { word }])).await.map(drop)
        }
        "Function/ChangeGroup" => function.change_group(ChangeGroupRequest::default()).await.map(drop),
        "Function/FunctionStatus" => function.function_status(FunctionStatusRequest {}).await.map(drop),
        _ => panic!("{rpc} is not asked about: give it a line here"),
    }
}

#[test]
fn every_rpc_of_the_contract_is_in_the_table() {
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
async fn each_role_calls_what_the_configuration_lets_it_call() {
    let authority = Authority::new();
    let free = "127.0.0.1:0".parse().unwrap();
    let listener = pathcall_control::bind(free).await.unwrap();
    let config = pathcall_control::Config::default().security(keeper(&authority, Role::Controller));
    let controller = pathcall_control::serve(listener, config).await.unwrap();
    let config = pathcall_element::Config::default().data(free).control(free).controller(Some(controller.url()));
    let element = pathcall_element::run(config.security(keeper(&authority, Role::Element))).await.unwrap();
    let mut known = element.registration();
    let registered = known.wait_for(|known| matches!(known, pathcall_element::Registration::Known { .. }));
    timeout(HANG, registered).await.expect("the element is known").unwrap();

    let security = keeper(&authority, Role::Server);
    let builder = Server::builder(&PATHCALL).manifest(&STORE).pool(POOL).security(security.clone());
    let server = builder.controller(controller.url()).data_address(free).build().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let incoming = Incoming::new(listener, security.credentials().unwrap().clone());
    let services = tonic::transport::Server::builder()
        .layer(server.layer())
        .add_service(TrainingServer::new(Handlers(Default::default())));
    let mut serving = JoinSet::new();
    serving.spawn(services.serve_with_incoming(incoming));

    let operator = authority.credentials(Role::Operator, "kept");
    let channel = Target::new(&controller.url(), Some(&operator), Peer::new(Role::Controller)).unwrap().connect_lazy();
    let mut ids = [0; 2];
    for (id, name) in ids.iter_mut().zip([RIGHT, WRONG]) {
        let found = ControllerClient::new(channel.clone()).lookup(LookupRequest { name: name.into() }).await;
        *id = found.unwrap().into_inner().gaid;
    }
    // By hand from the page: nobody but who is named there, for what is named there.
    assert_eq!(ask_all(&authority, "Controller/", &controller.url(), ids).await, 5 + 3 + 2 * 2 + 2);
    assert_eq!(ask_all(&authority, "Element/", element.control_url(), ids).await, 2 * (7 + 2 * 3));
    assert_eq!(ask_all(&authority, "Peer/", &url, ids).await, 2 * 8 + 2 * 2);
    for role in [Role::Caller, Role::Operator] {
        let target =
            Target::new(&controller.url(), Some(&authority.credentials(role, NAME)), Peer::new(Role::Controller));
        let mut looking = ControllerClient::new(target.unwrap().connect_lazy());
        looking.nodes(NodesRequest::default()).await.expect("who is there may be looked at");
    }
    element.shutdown().await;
    timeout(HANG + Duration::from_secs(1), controller.shutdown()).await.expect("it stops");
}
