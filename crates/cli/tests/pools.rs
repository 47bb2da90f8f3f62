//! Test of `pathcall status` for a pool of servers, through an element that the command starts.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use pathcall_rpc::Channel;
use pathcall_test_support::service::note;
use pathcall_test_support::store::{PoolServer, STORE};
use pathcall_test_support::stubs::store_client::StoreClient;

use crate::isolation::LIMIT;

/// Controller and element, killed on drop.
struct UpProcess(Child);

impl Drop for UpProcess {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("child process");
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(crate::PATHCALL);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn up() -> (UpProcess, String) {
    let free = "127.0.0.1:0";
    let mut child =
        command(&["up", "--listen", free, "--data", free, "--control", free, "--rack", "a"]).spawn().expect("built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("the controller's URL");
    (UpProcess(child), url.trim_end_matches([',', ';', '.']).to_owned())
}

fn status(url: &str, json: bool) -> String {
    let args = ["status", "--controller", url, "--json"];
    let output = command(&args[..if json { 4 } else { 3 }]).output().expect("the command is built");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn status_lists_pools_and_servers() {
    let (_up, url) = up();
    let mut members = Vec::new();
    for _ in 0..2 {
        members.push(PoolServer::start(&url, |options| options.rack("a")).await);
    }
    let all = async {
        while !members
            .iter()
            .all(|member| member.pathcall.pool_stats().is_some_and(|pool| pool.servers == 2 && pool.element))
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("the pool has both servers on the element");
    let channel = Channel::connect(members[0].uri(), &STORE).await.unwrap();
    for _ in 0..10 {
        StoreClient::new(channel.clone()).get(note("hello")).await.unwrap();
    }
    let printed: serde_json::Value = serde_json::from_str(&status(&url, true)).expect("JSON");
    let pool = &printed["pools"][0];
    assert_eq!((&pool["name"], &pool["callers"], &pool["element"]), (&"rpctest.Store".into(), &1.into(), &1.into()));
    let listed = |uri: String| (0..2).any(|sid| pool["servers"][sid]["service_address"] == uri);
    assert!(members.iter().all(|member| listed(member.uri())), "{pool}");
    let rack = |name: &str, servers: u32, callers: u32| serde_json::json!({ "rack": name, "element": 1, "servers": servers, "callers": callers });
    assert_eq!(pool["racks"], serde_json::json!([rack("", 0, 1), rack("a", 2, 0)]));
    assert_eq!((&pool["elements"][0]["rack"], &printed["elements"][0]["rack"]), (&"a".into(), &"a".into()));
    let gaid = pool["gaid"].to_string();
    let counters = &printed["elements"][0]["counters"]["applications"][&gaid];
    assert!(counters["requests"].as_u64() >= Some(10), "{counters}");
    let text = status(&url, false);
    let head = text.lines().find(|line| line.starts_with("pool ") && line.ends_with("filtered"));
    assert!(head.is_some(), "{text}");
    assert!(text.lines().any(|line| line.ends_with(&members[0].uri())), "{text}");
    assert!(text.lines().any(|line| line.starts_with("pool ") && line.ends_with("of other racks")), "{text}");
}
