//! Tests of keys of map frames: assignment, and lifetime.

use super::*;

const KEYS: [TokenKey; 2] = [TokenKey { k0: 0x1111, k1: 0x2222 }, TokenKey { k0: 0x3333, k1: 0x4444 }];

fn signed(name: &str, incarnation: u32) -> RegisterApplicationRequest {
    RegisterApplicationRequest { authenticate: true, ..application(name, incarnation, 100) }
}

impl TestNetwork {
    /// Registers with a random key available, as the engine does.
    fn sign(&mut self, key: TokenKey, request: RegisterApplicationRequest) -> (ControlCallId, ApplicationGrant) {
        self.input(Input::Key(key));
        let call = self.register(request);
        self.deliver_all();
        let grant = self.grants(call).pop().unwrap_or_else(|| panic!("no grant: {:?}", self.answers.last()));
        (call, grant)
    }

    fn installed_key(&self, gaid: u32) -> Option<TokenKey> {
        self.elements[0].applications[&gaid].token_key
    }
}

#[test]
fn owner_and_element_get_new_key() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (_, grant) = net.sign(KEYS[0], signed("MR-1", 5));
    assert_eq!((grant.token_key, net.installed_key(grant.gaid)), (Some(KEYS[0]), Some(KEYS[0])));
    let (_, plain) = net.owner("MR-2", 6, 100);
    assert_eq!((plain.token_key, net.installed_key(plain.gaid)), (None, None));
    let status = net.state.status();
    assert_eq!(status.applications.iter().map(|a| a.authenticated).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn key_is_used_for_one_registration_only() {
    let mut net = TestNetwork::new();
    net.sign(KEYS[0], application("MR-1", 5, 100));
    let call = net.register(signed("MR-2", 6));
    assert_eq!(net.refusal(call), Some(RegistrationRefusal::NoKey("MR-2".into())), "the key was not for this one");
    net.sign(KEYS[1], signed("MR-2", 6));
}

#[test]
fn owner_keeps_key_over_restarts() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, grant) = net.sign(KEYS[0], signed("MR-1", 5));
    net.restart_element(0);
    net.register_element(0);
    net.deliver_all();
    assert_eq!(net.installed_key(grant.gaid), Some(KEYS[0]), "the element");
    let again = net.grants(call).pop().unwrap();
    assert!(again.epoch > grant.epoch && again.token_key == Some(KEYS[0]));

    net.restart_controller();
    let (call, grant) = net.sign(KEYS[1], signed("MR-1", 5));
    assert_eq!(grant.token_key, Some(KEYS[0]), "the controller");
    // The lease expired, and the same process registers again.
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    net.deliver_all();
    let (_, grant) = net.sign(KEYS[1], signed("MR-1", 5));
    assert_eq!(grant.token_key, Some(KEYS[0]), "the stream");
}

#[test]
fn new_owner_gets_new_key() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    let (call, first) = net.sign(KEYS[0], signed("MR-1", 5));
    net.input(Input::Ended(call));
    net.pass(TIMING.grace);
    net.deliver_all();
    let (_, second) = net.sign(KEYS[1], signed("MR-1", 6));
    assert_eq!((first.gaid, second.token_key), (second.gaid, Some(KEYS[1])));
    assert_eq!(net.installed_key(second.gaid), Some(KEYS[1]));
}

#[test]
fn key_is_not_shown_in_status() {
    let mut net = TestNetwork::new();
    net.element(1024, 1 << 20, 64);
    net.sign(KEYS[0], signed("MR-1", 5));
    let shown = format!("{:?} {:?} {:?}", net.state, net.answers, net.state.status());
    assert!(shown.contains("TokenKey(secret)"));
    for part in ["4369", "8738", "1111", "2222"] {
        assert!(!shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn unused_key_is_not_given_to_other_server() {
    let mut net = TestNetwork::new();
    net.input(Input::Key(KEYS[0]));
    let plain = net.join("plain", 1);
    assert_eq!(net.pool_grants(plain)[0].pool.as_ref().unwrap().token_key, None);
    let wants = JoinPoolRequest { authenticate: true, ..super::pools::joining("signed", 2) };
    let call = net.call();
    net.input(Input::JoinPool(call, wants));
    assert_eq!(net.refusal(call), Some(RegistrationRefusal::NoKey("signed".into())));
}
