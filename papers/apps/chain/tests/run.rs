//! The application as a user runs it.

use std::process::Command;

use pathcall_test_support::application::{Running, addresses};

const CHAIN: &str = env!("CARGO_BIN_EXE_chain");

fn chain(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(CHAIN, arguments)
}

/// A process that has said that it is there.
fn start(arguments: &[&str]) -> Running {
    let mut process = Running::start(Command::new(CHAIN).args(arguments));
    let line = process.line();
    assert!(line.contains("http://"), "{line:?}");
    process
}

#[test]
fn the_demo_counts_each_update_once() {
    let said = chain(&["demo", "--calls", "10", "--lease", "1000"]).expect("it ends well");
    assert!(said.ends_with("21 updates, each took effect once\n"), "{said}");
}

#[test]
fn the_simulator_judges() {
    assert_eq!(
        chain(&["sim", "--seeds", "20"]).expect("linearizable"),
        "20 chains, and every history is linearizable\n"
    );
}

#[test]
fn a_node_that_is_killed_is_left_out() {
    let (node, listen) = (addresses(3), addresses(4));
    let members: Vec<_> = (0..3).map(|i| format!("{}/{}", node[i], listen[i])).collect();
    let (lease, master) = (["--lease", "1000"], format!("http://{}", listen[3]));
    let mut of_master = vec!["master", "--listen", &listen[3]];
    members.iter().for_each(|member| of_master.extend(["--node", member]));
    let _master = start(&[&of_master[..], &lease].concat());
    let mut nodes: Vec<_> = (0..3)
        .map(|i| {
            let id = i.to_string();
            let own = ["serve", "--id", &id, "--node", &node[i], "--listen", &listen[i], "--master", &master];
            Some(start(&[&own[..], &lease].concat()))
        })
        .collect();
    let ask = |what: &[&str]| chain(&[what, &["--master", &master, "--give-up", "40"], &lease].concat());
    assert_eq!(ask(&["put", "k", "a"]).expect("written"), "a\n");
    nodes[1] = None;
    assert_eq!(ask(&["append", "k", "b"]).expect("two are left"), "ab\n");
    nodes[2] = None;
    assert_eq!(ask(&["get", "k"]).expect("one is left"), "ab\n");
    assert_eq!(ask(&["get", "other"]).expect_err("nothing"), "chain: \"other\" has no value\n");
}

#[test]
fn bad_arguments_are_explained() {
    let error = chain(&["master", "--node", "127.0.0.1:1"]).expect_err("half a node");
    assert!(error.contains("as 127.0.0.1:7801/127.0.0.1:7901"), "{error}");
}
