//! Test of two racks with an element each in the kernel (NetClone §3.7): real processes on a testbed. Needs root, and the
//! application `kv` beside the command.
//!
//! ```text
//! rack a: hosts 1, 3 (servers), 5 (a caller) ── element 1 ◀──▶ element 2 ── rack b: hosts 2, 4 (servers), 6 (a caller)
//! ```

use std::path::Path;
use std::process::Command;

use pathcall_test_support::process::until;
use pathcall_testbed::{Testbed, TestbedNode, root_tests};
use serde_json::Value;

use crate::PATHCALL;
use crate::xdp::{Process, controller_command, controller_url, report, status, until_status};

const RACKS: [&str; 2] = ["a", "b"];

/// Testbed with a controller on the first element.
struct RackTestbed {
    // Processes are dropped before the namespaces that they run in.
    processes: Vec<Process>,
    elements: Vec<Process>,
    bed: Testbed,
}

impl RackTestbed {
    fn start() -> Self {
        let bed = Testbed::builder().name(&format!("racks{}", std::process::id())).hosts(6).elements(2);
        let bed = bed.up().expect("a bed");
        let mut net = Self { processes: Vec::new(), elements: Vec::new(), bed };
        net.processes.push(Process::start(controller_command(&net.element(0))).0);
        for rack in 0..RACKS.len() {
            let element = Process::start(net.element_command(rack)).0;
            net.elements.push(element);
            // The first one has the lowest id.
            net.until(|status| status["elements"][rack]["alive"] == true);
        }
        net
    }

    fn element(&self, rack: usize) -> TestbedNode {
        self.bed.element(rack + 1).expect("an element")
    }

    fn url(&self) -> String {
        controller_url(&self.element(0))
    }

    fn element_command(&self, rack: usize) -> Command {
        let node = self.element(rack);
        let (mut command, at) = (node.command(PATHCALL), |port| format!("{}:{port}", node.address()));
        command.args(["element", "--insecure", "--controller", &self.url(), "--rack", RACKS[rack]]);
        command.args(["--data", &at(7702), "--control", &at(7701)]);
        let interfaces = [["h1", "h3", "h5", "e2"], ["h2", "h4", "h6", "e1"]][rack];
        interfaces.iter().for_each(|interface| _ = command.args(["--xdp", interface]));
        command
    }

    /// Command of the application on a host, in the host's rack.
    fn kv(&self, host: usize, what: &str) -> Command {
        let program = Path::new(PATHCALL).with_file_name("kv");
        assert!(program.is_file(), "{}: build it first (`cargo build --release -p kv`)", program.display());
        let mut command = self.bed.host(host).expect("a host").command(program);
        command.args([what, "--rack", RACKS[(host + 1) % 2]]);
        command
    }

    fn status(&self) -> Option<Value> {
        status(&self.element(0))
    }

    fn until(&self, condition: impl Fn(&Value) -> bool) {
        until_status(&self.element(0), condition);
    }

    /// Counters of the pool in the element of a rack: requests, clones, answers, filtered answers, and frames that
    /// another element has decided about.
    fn counts(&self, rack: usize) -> [u64; 5] {
        let read = || {
            let status = self.status()?;
            let gaid = status["pools"][0]["gaid"].to_string();
            let elements = status["elements"].as_array()?;
            let element = elements.iter().find(|element| element["rack"] == RACKS[rack])?;
            let counters = &element["counters"]["applications"][gaid];
            let counts: Option<Vec<u64>> = ["requests", "clones", "replies", "filtered", "passed"]
                .into_iter()
                .map(|name| counters[name].as_u64())
                .collect();
            counts?.try_into().ok()
        };
        until("counters", read)
    }
}

#[test]
fn calls_of_two_racks_are_cloned_in_kernel_of_callers_rack() {
    if !root_tests("calls_of_two_racks_are_cloned_in_kernel_of_callers_rack") {
        return;
    }
    let mut net = RackTestbed::start();
    let mut servers = Vec::new();
    for host in 1..=4 {
        let listen = format!("{}:7800", net.bed.host(host).expect("a host").address());
        let mut server = net.kv(host, "serve");
        server.args(["--listen", &listen, "--controller", &net.url()]);
        net.processes.push(Process::start(server).0);
        servers.push(format!("http://{listen}"));
    }
    let len = |value: &Value| value.as_array().map_or(0, Vec::len);
    net.until(|status| {
        let pool = &status["pools"][0];
        (len(&pool["servers"]), len(&pool["elements"])) == (4, 2)
    });
    // The callers are on the hosts 5 and 6, and know a server of the other rack. The application checks the values.
    let read = |net: &RackTestbed, rack: usize| {
        let mut demo = net.kv(5 + rack, "demo");
        demo.args(["--json", "--pool", &servers[1 - rack], "--servers", "4", "--load", "0.1", "--seconds", "1"]);
        report(demo.arg("--no-random").output().expect("the program runs"))
    };
    for rack in [0, 1] {
        let other = net.counts(1 - rack);
        // On a busy machine servers are busy, too: the element sees two idle ones in one of several runs.
        until("few calls are cloned", || {
            let report = read(&net, rack);
            println!("rack {}: {report}", RACKS[rack]);
            report["ways"][0]["extra"].as_f64().filter(|share| *share > 0.3)
        });
        let [requests, clones, replies, filtered, _] = net.counts(rack);
        println!("{requests} requests, {clones} clones, {replies} answers, {filtered} of them filtered");
        assert!(clones > 0 && clones <= requests && filtered > 0 && filtered < replies);
        let after = net.counts(1 - rack);
        assert_eq!((after[0], after[1]), (other[0], other[1]), "the other element decides about none of these calls");
        assert!(after[4] > other[4], "it has passed frames");
    }
    // User space has only made the second pass of clones, for servers behind one interface.
    let is_in_kernel =
        |status: &Value, rack: usize| status["elements"][rack]["counters"]["element"]["link_frames_in"] == 0;
    net.until(|status| is_in_kernel(status, 0) && is_in_kernel(status, 1));
    // Without the element of their rack, calls go on, by the other element.
    net.elements.pop();
    read(&net, 1);
    net.until(|status| len(&status["pools"][0]["elements"]) == 1);
    let before = net.counts(0);
    until("the element gets calls of the other rack", || {
        read(&net, 1);
        (net.counts(0)[0] > before[0]).then_some(())
    });
}
