//! Tests of names, addresses and the access table.

use PartyRole::{Caller, Operator, Server};
use pathcall_auth::access::rpcs;
use pathcall_auth::{AccessGrant, AccessTable, Identity, PartyRole, Pattern, PlaintextError, plaintext};

#[test]
fn pattern_matches_whole_names() {
    let matches = |pattern: &str, name: &str| Pattern::new(pattern).matches(name);
    for (pattern, name) in
        [("a", "a"), ("*", ""), ("*", "x"), ("a*", "a"), ("a*b", "ab"), ("a*b*c", "a-b-b-c"), ("*/x", "q/x")]
    {
        assert!(matches(pattern, name), "{pattern} {name}");
    }
    for (pattern, name) in
        [("a", "ab"), ("a", ""), ("", "a"), ("a*", "b"), ("a*a", "a"), ("a*b*c", "a-c-b"), ("*/x", "x")]
    {
        assert!(!matches(pattern, name), "{pattern} {name}");
    }
}

#[test]
fn plaintext_needs_loopback_or_insecure() {
    for address in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(plaintext("controller", address.parse().unwrap(), false), Ok(()), "{address}");
    }
    for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fe80::1]:1"] {
        let address = address.parse().unwrap();
        assert_eq!(plaintext("controller", address, false), Err(PlaintextError { what: "controller", address }));
        assert_eq!(plaintext("controller", address, true), Ok(()));
    }
}

#[test]
fn default_access_covers_each_known_rpc_only() {
    let allows = |role, rpc: &str| AccessTable::default().allows(&Identity::new(role, "x"), rpc, Some("a"));
    for rpc in rpcs() {
        let allowed = PartyRole::ALL.into_iter().filter(|role| allows(*role, rpc)).count();
        assert!((1..=3).contains(&allowed), "{rpc}");
    }
    assert!(PartyRole::ALL.into_iter().all(|role| !allows(role, "Controller/Unheard")));
}

#[test]
fn grant_allows_only_its_names_rpcs_and_applications() {
    let words = AccessGrant::new(Server).name(Pattern::new("words-*")).applications([Pattern::new("Words*")]);
    let look = AccessGrant::new(Caller).rpcs([Pattern::new("Controller/Status")]);
    let access = AccessTable::default().grant(words).grant(look);
    let allows = |role, name: &str, rpc, app| access.allows(&Identity::new(role, name), rpc, app);
    assert!(allows(Server, "words-1", "Controller/RegisterApplication", Some("WordsTotal")));
    assert!(allows(Server, "words-1", "Controller/RegisterApplication", None), "for some application");
    assert!(!allows(Server, "words-1", "Controller/RegisterApplication", Some("Votes")));
    assert!(!allows(Server, "votes", "Controller/RegisterApplication", Some("WordsTotal")));
    assert!(!allows(Server, "words-1", "Controller/Status", None), "not what a server needs");
    assert!(allows(Caller, "c", "Controller/Status", None));
    assert!(!allows(Caller, "c", "Controller/Lookup", Some("WordsTotal")), "only what its grant says");
    assert!(!allows(Operator, "o", "Controller/Status", None), "no grant of operators");
}

#[test]
fn identity_uri_round_trips() {
    for role in PartyRole::ALL {
        let identity = Identity::new(role, "rack-1/words_2.a");
        assert_eq!(Identity::of_uri(&identity.uri("corp.example")), Some(("corp.example", identity)));
    }
}

#[test]
fn foreign_uri_has_no_identity() {
    for uri in [
        "spiffe://d/pathcall/server/",
        "spiffe://d/pathcall/server",
        "spiffe://d/pathcall/server//x",
        "spiffe://d/pathcall/server/..",
        "spiffe://d/pathcall/server/a%2fb",
        "spiffe://d/pathcall/root/x",
        "spiffe:///pathcall/server/x",
        "spiffe://d/ns/pathcall/server/x",
        "https://d/pathcall/server/x",
    ] {
        assert_eq!(Identity::of_uri(uri), None, "{uri}");
    }
}
