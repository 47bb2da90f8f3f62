//! Test of all abilities together, as processes on the loopback: one service whose methods use map, clone, delegate and
//! place, called by several callers at once, while one of its servers and the element are killed and restarted. Callers
//! check each answer, and the sum of all likes.

use std::process::Command;

use pathcall_test_support::photo_callers::PhotoCallers;
use pathcall_test_support::process::{Process, program, until};
use serde_json::Value;

use crate::PATHCALL;
use crate::isolation::free_port;

/// Controller and element at fixed addresses, and the three servers of the service.
struct ServiceSystem {
    ports: [u16; 3],
    _controller: Process,
    element: Option<Process>,
    servers: Vec<(&'static str, Process)>,
    front: String,
}

impl ServiceSystem {
    fn start() -> Self {
        let ports = [(); 3].map(|()| free_port());
        let listen = format!("127.0.0.1:{}", ports[0]);
        let (controller, _) = Process::ready(Command::new(PATHCALL).args(["controller", "--listen", &listen]));
        let mut house =
            Self { ports, _controller: controller, element: None, servers: Vec::new(), front: String::new() };
        house.start_element();
        house.front = house.serve("front");
        for name in ["index", "archive"] {
            house.serve(name);
        }
        house.until("three servers, by the element", |status| {
            let pool = &status["pools"][0];
            pool["servers"].as_array().is_some_and(|servers| servers.len() == 3) && pool["element"] != 0
        });
        house
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    fn start_element(&mut self) {
        let [_, control, data] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let args = ["element", "--controller", &self.url(), "--control", &control, "--data", &data];
        self.element = Some(Process::ready(Command::new(PATHCALL).args(args)).0);
    }

    /// Starts a server. Returns its address.
    fn serve(&mut self, name: &'static str) -> String {
        let mut command = Command::new(program("photos"));
        let (process, ready) = Process::ready(command.args(["serve", name, "--controller", &self.url()]));
        self.servers.push((name, process));
        ready.trim_start_matches("ready ").trim().to_owned()
    }

    fn kill(&mut self, name: &str) {
        self.servers.retain(|(known, _)| *known != name);
    }

    fn status(&self) -> Value {
        let output = Command::new(PATHCALL).args(["status", "--json", "--controller", &self.url()]).output();
        serde_json::from_slice(&output.expect("the program runs").stdout).unwrap_or_default()
    }

    /// Waits until the controller's status meets a condition.
    fn until(&self, what: &str, mut condition: impl FnMut(&Value) -> bool) {
        until(what, || condition(&self.status()).then_some(()));
    }

    /// Waits until the element has processed `more` further frames.
    fn until_frames(&self, calling: &mut PhotoCallers, more: u64) {
        let frames = |status: &Value| status["elements"][0]["counters"]["element"]["frames_in"].as_u64();
        let before = frames(&self.status()).unwrap_or(0);
        self.until("frames at the element", |status| {
            calling.go_on();
            frames(status).is_some_and(|frames| frames >= before + more)
        });
    }
}

#[test]
fn answers_stay_correct_over_server_and_element_kills() {
    let mut house = ServiceSystem::start();
    let mut calling = PhotoCallers::start(Command::new(program("photos")), &house.front);
    house.until_frames(&mut calling, 300);

    // The server of the last search step, which is also one of three for reads and thumbnails.
    house.kill("archive");
    house.until_frames(&mut calling, 300);
    house.serve("archive");
    house.until_frames(&mut calling, 300);

    house.element = None;
    house.start_element();
    house.until_frames(&mut calling, 300);

    let report = calling.end();
    let again = report["again"].as_u64().expect("a count");
    println!("{} calls, {again} of them made again: {report:#}", report["calls"]);
    let share = |name: &str| report[name].as_f64().expect("a share");
    assert!(share("likes_in_element") > 0.0 && share("cloned") > 0.0, "{report:#}");
    for method in report["methods"].as_array().expect("methods") {
        assert!(method["calls"].as_u64() >= Some(60), "{method:#}");
    }
    let made = ["cpu", "acc"].map(|role| report["thumbnails"][role].as_u64().expect("a count"));
    assert_eq!(made.iter().sum::<u64>(), report["methods"][2]["calls"].as_u64().expect("a count"), "{report:#}");
    assert!(report["trace"].as_str().is_some_and(|trace| trace.contains("/Fetch (")), "{report:#}");
}
