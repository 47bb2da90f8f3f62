//! Service that uses map, clone, delegate and place on the servers' hosts, through the element that runs the function.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use pathcall_testbed::TestbedNode;
use serde_json::Value;

use super::testbed::LiveTestbed;
use pathcall_test_support::process::{Process, program, until};

/// Servers that delegate to each other; the front knows all.
pub const NAMES: [&str; 3] = ["front", "index", "archive"];

/// Servers of the service, each on its own host.
pub struct Photos {
    hosts: Vec<TestbedNode>,
    controller: String,
    pub servers: BTreeMap<&'static str, Process>,
    pub front: String,
}

impl Photos {
    /// Starts all servers and waits until the controller knows them.
    pub fn start(testbed: &LiveTestbed) -> Self {
        let hosts = NAMES.iter().enumerate().map(|(at, _)| testbed.server_host(at)).collect();
        let (controller, servers) = (testbed.map_url(), BTreeMap::new());
        let mut photos = Self { hosts, controller, servers, front: String::new() };
        photos.front = photos.serve(NAMES[0]);
        for name in &NAMES[1..] {
            photos.serve(name);
        }
        photos.until_known(testbed);
        photos
    }

    /// Starts a server. Returns its address.
    pub fn serve(&mut self, name: &'static str) -> String {
        let at = NAMES.iter().position(|known| *known == name).expect("a name");
        let mut command = self.command(at);
        command.args(["serve", name, "--at", &format!("{}:0", self.hosts[at].address())]);
        let (process, ready) = Process::ready(command.args(["--controller", &self.controller]));
        self.servers.insert(name, process);
        ready.trim_start_matches("ready ").trim().to_owned()
    }

    /// Waits until the pool on the element has all servers.
    pub fn until_known(&self, testbed: &LiveTestbed) {
        until("the pool on the element lacks servers", || {
            let status = testbed.map_status()?;
            let pool = status["pools"].get(0)?;
            (pool["servers"].as_array()?.len() == NAMES.len() && pool["element"] != 0).then_some(())
        });
    }

    /// Command of the application, on the host with this number.
    pub fn command(&self, at: usize) -> Command {
        self.hosts[at].command(program("photos"))
    }

    /// Runs three callers, which check each answer. Returns the report.
    pub fn call(&self, way: &[&str]) -> Value {
        let mut command = self.command(2);
        command.args(["demo", "--json", "--callers", "3", "--calls", "60"]).args(way).stdin(Stdio::null());
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a report")
    }
}
