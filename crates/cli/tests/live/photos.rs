//! A service that uses map, clone, delegate and place, on the servers' hosts, by the element that carries the function.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use pathcall_testbed::Node;
use serde_json::Value;

use super::bed::Bed;
use pathcall_test_support::process::{Process, program, until};

/// They pass on to each other, the front knows all.
pub const NAMES: [&str; 3] = ["front", "index", "archive"];

/// Its servers, each on a host of its own.
pub struct Photos {
    hosts: Vec<Node>,
    controller: String,
    pub servers: BTreeMap<&'static str, Process>,
    pub front: String,
}

impl Photos {
    /// All servers, known to the controller.
    pub fn start(bed: &Bed) -> Self {
        let hosts = NAMES.iter().enumerate().map(|(at, _)| bed.server_host(at)).collect();
        let (controller, servers) = (bed.map_url(), BTreeMap::new());
        let mut photos = Self { hosts, controller, servers, front: String::new() };
        photos.front = photos.serve(NAMES[0]);
        for name in &NAMES[1..] {
            photos.serve(name);
        }
        photos.until_known(bed);
        photos
    }

    /// Starts a server; where it is.
    pub fn serve(&mut self, name: &'static str) -> String {
        let at = NAMES.iter().position(|known| *known == name).expect("a name");
        let mut command = self.command(at);
        command.args(["serve", name, "--at", &format!("{}:0", self.hosts[at].address())]);
        let (process, ready) = Process::ready(command.args(["--controller", &self.controller]));
        self.servers.insert(name, process);
        ready.trim_start_matches("ready ").trim().to_owned()
    }

    /// Waits until the pool has all servers, on the element.
    pub fn until_known(&self, bed: &Bed) {
        until("the pool has not all servers, on the element", || {
            let status = bed.map_status()?;
            let pool = status["pools"].get(0)?;
            (pool["servers"].as_array()?.len() == NAMES.len() && pool["element"] != 0).then_some(())
        });
    }

    /// The application, on the host with this number.
    pub fn command(&self, at: usize) -> Command {
        self.hosts[at].command(program("photos"))
    }

    /// What three callers report, who hold each answer against what it has to be.
    pub fn call(&self, way: &[&str]) -> Value {
        let mut command = self.command(2);
        command.args(["demo", "--json", "--callers", "3", "--calls", "60"]).args(way).stdin(Stdio::null());
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a report")
    }
}
