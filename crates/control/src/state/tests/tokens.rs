//! Keys that sign map frames: who gets which, and how long it stays.

use super::*;

const KEYS: [TokenKey; 2] = [TokenKey { k0: 0x1111, k1: 0x2222 }, TokenKey { k0: 0x3333, k1: 0x4444 }];

fn signed(name: &str, incarnation: u32) -> RegisterApplicationRequest {
    RegisterApplicationRequest { authenticate: true, ..application(name, incarnation, 100) }
}

impl World {
    /// Registers with a key at hand, as the engine does.
    fn sign(&mut self, key: TokenKey, request: RegisterApplicationRequest) -> (CallId, ApplicationGrant) {
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
fn owner_and_element_get_the_key_that_was_drawn() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (_, grant) = world.sign(KEYS[0], signed("MR-1", 5));
    assert_eq!((grant.token_key, world.installed_key(grant.gaid)), (Some(KEYS[0]), Some(KEYS[0])));
    let (_, plain) = world.owner("MR-2", 6, 100);
    assert_eq!((plain.token_key, world.installed_key(plain.gaid)), (None, None));
    let status = world.state.status();
    assert_eq!(status.applications.iter().map(|a| a.authenticated).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_key_is_drawn_for_one_registration_only() {
    let mut world = World::new();
    world.sign(KEYS[0], application("MR-1", 5, 100));
    let call = world.register(signed("MR-2", 6));
    assert_eq!(world.refusal(call), Some(Refusal::NoKey("MR-2".into())), "the key was not for this one");
    world.sign(KEYS[1], signed("MR-2", 6));
}

#[test]
fn an_owner_keeps_its_key_whatever_restarts() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, grant) = world.sign(KEYS[0], signed("MR-1", 5));
    world.restart_element(0);
    world.register_element(0);
    world.deliver_all();
    assert_eq!(world.installed_key(grant.gaid), Some(KEYS[0]), "the element");
    let again = world.grants(call).pop().unwrap();
    assert!(again.epoch > grant.epoch && again.token_key == Some(KEYS[0]));

    world.restart_controller();
    let (call, grant) = world.sign(KEYS[1], signed("MR-1", 5));
    assert_eq!(grant.token_key, Some(KEYS[0]), "the controller");
    // Its lease ran out unseen, and the same process is back.
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    world.deliver_all();
    let (_, grant) = world.sign(KEYS[1], signed("MR-1", 5));
    assert_eq!(grant.token_key, Some(KEYS[0]), "the stream");
}

#[test]
fn another_owner_gets_another_key() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    let (call, first) = world.sign(KEYS[0], signed("MR-1", 5));
    world.input(Input::Ended(call));
    world.pass(TIMING.grace);
    world.deliver_all();
    let (_, second) = world.sign(KEYS[1], signed("MR-1", 6));
    assert_eq!((first.gaid, second.token_key), (second.gaid, Some(KEYS[1])));
    assert_eq!(world.installed_key(second.gaid), Some(KEYS[1]));
}

#[test]
fn a_key_is_shown_nowhere() {
    let mut world = World::new();
    world.element(1024, 1 << 20, 64);
    world.sign(KEYS[0], signed("MR-1", 5));
    let shown = format!("{:?} {:?} {:?}", world.state, world.answers, world.state.status());
    assert!(shown.contains("TokenKey(secret)"));
    for part in ["4369", "8738", "1111", "2222"] {
        assert!(!shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn key_that_a_joining_server_does_not_want_is_no_other_servers() {
    let mut world = World::new();
    world.input(Input::Key(KEYS[0]));
    let plain = world.join("plain", 1);
    assert_eq!(world.pool_grants(plain)[0].pool.as_ref().unwrap().token_key, None);
    let wants = JoinPoolRequest { authenticate: true, ..super::pools::joining("signed", 2) };
    let call = world.call();
    world.input(Input::JoinPool(call, wants));
    assert_eq!(world.refusal(call), Some(Refusal::NoKey("signed".into())));
}
