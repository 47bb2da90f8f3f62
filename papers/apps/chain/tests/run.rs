//! Tests of the command `chain`.

use std::process::Command;

use pathcall_test_support::application::{ApplicationProcess, addresses};

const CHAIN: &str = env!("CARGO_BIN_EXE_chain");

fn chain(arguments: &[&str]) -> Result<String, String> {
    pathcall_test_support::application::says(CHAIN, arguments)
}

/// Starts a process and waits for its first line.
fn start(arguments: &[&str]) -> ApplicationProcess {
    let mut process = ApplicationProcess::start(Command::new(CHAIN).args(arguments));
    let line = process.line();
    assert!(line.contains("http://"), "{line:?}");
    process
}

#[test]
fn demo_counts_each_update_once() {
    let printed = chain(&["demo", "--calls", "10", "--lease", "1000"]).expect("success");
    assert!(printed.ends_with("21 updates, each took effect once\n"), "{printed}");
}

#[test]
fn sim_command_checks_seeds() {
    assert_eq!(chain(&["sim", "--seeds", "20"]).expect("linearizable"), "20 chains, all histories are linearizable\n");
}

#[test]
fn killed_node_is_removed_from_chain() {
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
    assert_eq!(ask(&["append", "k", "b"]).expect("two remaining nodes"), "ab\n");
    nodes[2] = None;
    assert_eq!(ask(&["get", "k"]).expect("one remaining node"), "ab\n");
    assert_eq!(ask(&["get", "other"]).expect_err("nothing"), "chain: \"other\" has no value\n");
}

#[test]
fn invalid_arguments_are_explained() {
    let error = chain(&["master", "--node", "127.0.0.1:1"]).expect_err("half a node");
    assert!(error.contains("as 127.0.0.1:7801/127.0.0.1:7901"), "{error}");
}
