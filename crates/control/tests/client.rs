//! The helper that keeps servers and elements registered.

use crate::common::{FakeElement, Scratch, TIMING, application, client, controller, start_at, within};
use pathcall_control::Config;
use pathcall_control::client::{Contact, Controller, Standing};
use pathcall_proto::v1::{ApplicationGrant, LookupRequest, RegisterElementRequest, StatusRequest};
use pathcall_test_support::loopback;

#[tokio::test]
async fn a_registration_lives_as_long_as_its_handle() {
    let (running, element) = (controller().await, FakeElement::start(1).await);
    let controller = Controller::new(&running.url()).unwrap();
    let of_element = controller.register_element(element.registration());
    let standing = within(of_element.first()).await;
    assert_eq!(standing.contact, Contact::Registered);
    assert_eq!(standing.grant.unwrap().element, 1);
    let owner = controller.register_application(application("MR-1", 5));
    let grant = within(owner.first()).await.grant.unwrap();
    assert!(grant.memory.is_some());

    // The element ends its registration: the owner is told.
    let mut standing = owner.standing();
    drop(of_element);
    let withdrawn =
        |standing: &Standing<ApplicationGrant>| standing.grant.as_ref().is_some_and(|grant| grant.memory.is_none());
    let now = within(standing.wait_for(withdrawn)).await.unwrap().clone().grant.unwrap();
    assert!(now.epoch > grant.epoch);

    drop(owner);
    let mut client = client(&running).await;
    within(async {
        while client.lookup(LookupRequest { name: "MR-1".into() }).await.unwrap().into_inner().alive {
            tokio::task::yield_now().await;
        }
    })
    .await;
    running.shutdown().await;
}

#[tokio::test]
async fn a_controller_that_comes_back_is_found_again() {
    let store = Scratch::new("client");
    let running = start_at(loopback::own(), store.config()).await;
    let (addr, element) = (running.addr(), FakeElement::start(1).await);
    let controller = Controller::new(&running.url()).unwrap();
    let of_element = controller.register_element(element.registration());
    within(of_element.first()).await;
    let owner = controller.register_application(application("MR-1", 5));
    let grant = within(owner.first()).await.grant.unwrap();

    running.shutdown().await;
    let mut standing = owner.standing();
    let lost = within(standing.wait_for(|s| s.contact != Contact::Registered)).await.unwrap().clone();
    assert!(matches!(lost.contact, Contact::Unreachable(_)), "{lost:?}");
    assert_eq!(lost.grant.as_ref(), Some(&grant), "it stays in force");

    let running = start_at(addr, store.config()).await;
    let found = within(standing.wait_for(|s| s.contact == Contact::Registered)).await.unwrap().clone();
    assert_eq!(found.grant.unwrap(), grant);
    let mut standing = of_element.standing();
    within(standing.wait_for(|s| s.contact == Contact::Registered)).await.unwrap();
    running.shutdown().await;
}

#[tokio::test]
async fn a_server_may_start_before_its_controller() {
    let addr = loopback::own();
    let controller = Controller::new(&format!("http://{addr}")).unwrap();
    let unreachable = controller.connect().await.unwrap_err().to_string();
    assert!(unreachable.starts_with(&format!("no controller answers at http://{addr} (")), "{unreachable}");
    assert!(unreachable.ends_with("start one, or name another with --controller"), "{unreachable}");

    let owner = controller.register_application(application("MR-1", 5));
    let standing = within(owner.first()).await;
    assert_eq!(standing.grant, None);
    assert!(matches!(standing.contact, Contact::Unreachable(_)), "{standing:?}");
    let running = start_at(addr, Config::default().timing(TIMING)).await;
    let mut standing = owner.standing();
    within(standing.wait_for(|s| s.contact == Contact::Registered && s.grant.is_some())).await.unwrap();
    running.shutdown().await;
}

#[tokio::test]
async fn a_refusal_is_told_and_may_end() {
    let running = controller().await;
    let controller = Controller::new(&running.url()).unwrap();
    let first = controller.register_application(application("MR-1", 5));
    within(first.first()).await;
    let second = controller.register_application(application("MR-1", 6));
    let standing = within(second.first()).await;
    let Contact::Refused(why) = &standing.contact else { panic!("{standing:?}") };
    assert!(why.contains("is owned by http://127.0.0.1:50005, alive"), "{why}");
    drop(first);
    within(second.standing().wait_for(|s| s.contact == Contact::Registered)).await.unwrap();

    let bad = RegisterElementRequest { control_address: "nowhere".into(), ..Default::default() };
    let standing = within(controller.register_element(bad).first()).await;
    assert_eq!(standing.contact, Contact::Refused("control_address: expected http://ip:port, got \"nowhere\"".into()));
    let mut client = client(&running).await;
    assert!(client.status(StatusRequest {}).await.unwrap().into_inner().elements.is_empty());
    running.shutdown().await;
}

#[test]
fn an_address_that_can_not_be_one_is_refused() {
    for url in ["", "127.0.0.1:7700", "http://127.0.0.1", "https://127.0.0.1:7700", "http://:x"] {
        let error = Controller::new(url).unwrap_err().to_string();
        let expected = format!("controller address {url:?}: expected http://host:port, as in http://127.0.0.1:7700");
        assert_eq!(error, expected);
    }
}
