//! Testbed of the live tests: host 1 inside, host 2 outside, the element between them, servers on hosts 3, 4 and 5.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use pathcall_testbed::{Testbed, TestbedNode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use pathcall_test_support::process::{Process, program, until};

use crate::PATHCALL;

/// Definitions of the function: inside is host 1's network. Closed and idle flows expire soon, so that groups can
/// change.
pub const DEFINES: [&str; 8] =
    ["-D", "INSIDE=0x0A4D0100", "-D", "INSIDE_MASK=0xFFFFFF00", "-D", "UDP_IDLE_MS=1500", "-D", "TCP_IDLE_MS=1500"];
const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
/// First of the servers' hosts.
const FIRST: usize = 3;
/// MTU of packets, and of links to servers, which carry packets with an extra header.
const MTU: u32 = 1500;
const SERVER_MTU: u32 = 1700;
/// Further addresses of host 1, in blocks: all flows of one address go to one server.
pub const BLOCKS: usize = 4;
pub const BLOCK: usize = 32;

/// Ends a process in order.
fn stop(mut process: Process) {
    kill_process(Pid::from_child(&process.0), Signal::TERM).expect("already present");
    assert!(process.0.wait().expect("child process").success());
}

/// Starts a process that prints nothing.
pub fn start_silent(command: &mut Command) -> Process {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Process(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

/// Starts a process and waits for `ready`.
fn ready(command: &mut Command) -> Process {
    let (process, ready) = Process::ready(command);
    println!("{}", ready.trim_end());
    process
}

pub struct LiveTestbed {
    // Processes are dropped before the namespaces that they run in.
    pub servers: BTreeMap<String, Process>,
    pub element: Option<Process>,
    /// Controller of map and clone.
    pub controller: Option<Process>,
    _outside: Vec<Process>,
    pub node: TestbedNode,
    pub inside: TestbedNode,
    pub outside: TestbedNode,
    pub topology: PathBuf,
    bed: Testbed,
}

impl Drop for LiveTestbed {
    fn drop(&mut self) {
        for file in [self.topology.clone(), self.topology.with_extension("store")] {
            // The file may be missing.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl LiveTestbed {
    /// Starts everything but servers.
    pub fn start() -> Self {
        let lacking: Vec<&str> = ["iperf3", "curl", "dnsmasq", "dig", "python3"]
            .into_iter()
            .filter(|program| {
                !Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success()
            })
            .collect();
        assert_eq!(lacking, [""; 0], "install these (Debian: iperf3 curl dnsmasq-base bind9-dnsutils python3)");
        let name = format!("fn{}x{:?}", std::process::id(), std::thread::current().id());
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let name = name.replace("threadid", "t");
        let bed = Testbed::builder().name(&name).hosts(FIRST + SERVERS.len() - 1).mtu(SERVER_MTU);
        let bed = bed.up().expect("a bed");
        let host = |k| bed.host(k).expect("a host");
        let (inside, outside, node) = (host(1), host(2), bed.element(1).expect("an element"));
        // The element acts as a wire: each host sees the other's interface as its gateway's.
        for (one, other, gateway) in [(&inside, &outside, "10.77.1.1"), (&outside, &inside, "10.77.2.1")] {
            run(one, &format!("ip link set eth0 mtu {MTU}"));
            run(one, &format!("ip neigh replace {gateway} lladdr {} dev eth0 nud permanent", mac(other)));
        }
        for at in 0..BLOCKS * BLOCK {
            run(&inside, &format!("ip addr add {}/32 dev eth0", address(at / BLOCK, at)));
        }
        for interface in ["h1", "h2"] {
            run(&node, &format!("ip link set {interface} mtu {MTU}"));
        }
        // The outside host's kernel tracks each connection.
        run(
            &outside,
            "nft add table inet judge { counter new { } ; counter invalid { } ; \
             chain in { type filter hook prerouting priority 0 ; ct state new counter name new ; \
             ct state invalid counter name invalid ; } ; }",
        );
        let mut topology = "[[device]]\nname = \"e1\"\nrole = \"element\"\n".to_owned();
        for (at, name) in ["inside", "outside"].into_iter().enumerate() {
            topology += &format!("\n[[device]]\nname = \"{name}\"\nrole = \"network\"\n");
            topology += &format!("[[link]]\nbetween = [\"e1:{at}\", \"{name}\"]\ninterface = \"h{}\"\n", at + 1);
        }
        for (at, name) in SERVERS.into_iter().enumerate() {
            let (port, mac) = (16 + at, mac(&host(FIRST + at)));
            topology += &format!("\n[[device]]\nname = \"{name}\"\nrole = \"server\"\nmac = \"{mac}\"\n");
            topology += &format!("[[link]]\nbetween = [\"e1:{port}\", \"{name}\"]\ninterface = \"h{}\"\n", FIRST + at);
        }
        let file = std::env::temp_dir().join(format!("pathcall-{name}.toml"));
        std::fs::write(&file, topology).expect("a file");
        let (servers, outsiders) = (BTreeMap::new(), traffic_servers(&outside));
        let mut bed = Self {
            servers,
            element: None,
            controller: None,
            _outside: outsiders,
            node,
            inside,
            outside,
            topology: file,
            bed,
        };
        bed.start_controller();
        bed.start_element();
        bed
    }

    pub fn url(&self) -> String {
        format!("http://{}:7703", self.node.address())
    }

    pub fn map_url(&self) -> String {
        format!("http://{}:7700", self.node.address())
    }

    /// Runs a map application between the servers' hosts through the same element. Returns its report.
    pub fn count_words(&self) -> Value {
        let output = self.word_count().output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("a report")
    }

    /// Command of the map application.
    pub fn word_count(&self) -> Command {
        let hosts: Vec<OsString> = (0..SERVERS.len()).map(|at| self.server_host(at).file().into()).collect();
        let at = self.server_host(0).address().to_string();
        let mut command = Command::new(program("wordcount"));
        command.args(["--json", "--path", "element", "--controller", &self.map_url(), "--serve-at", &at]);
        command.arg("--namespaces");
        command.arg(hosts.join(",".as_ref())).stdin(Stdio::null());
        command
    }

    /// Host of the server with this number, from 0.
    pub fn server_host(&self, at: usize) -> TestbedNode {
        self.bed.host(FIRST + at).expect("a host")
    }

    /// Status of the controller of map and clone.
    pub fn map_status(&self) -> Option<Value> {
        let mut status = self.node.command(PATHCALL);
        let output =
            status.args(["status", "--json", "--controller", &self.map_url()]).output().expect("the program runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Store of the controller.
    pub fn store(&self) -> PathBuf {
        self.topology.with_extension("store")
    }

    pub fn start_controller(&mut self) {
        let mut controller = self.node.command(PATHCALL);
        controller.args(["controller", "--insecure", "--listen", &format!("{}:7700", self.node.address()), "--store"]);
        controller.arg(self.store());
        self.controller = Some(ready(&mut controller));
    }

    pub fn start_element(&mut self) {
        self.element = Some(ready(&mut self.element_command()));
    }

    fn element_command(&self) -> Command {
        let mut command = self.node.command(PATHCALL);
        let at = |port| format!("{}:{port}", self.node.address());
        command.args([
            "element",
            "--insecure",
            "--data",
            &at(7702),
            "--control",
            &at(7701),
            "--function-listen",
            &at(7703),
        ]);
        // One element with all abilities: on the servers' interfaces it processes map frames, too.
        command.args(["--controller", &self.map_url(), "--xdp", "h3", "--xdp", "h4", "--xdp", "h5"]);
        command.args(["--function", &function(), "--topology"]);
        command.arg(&self.topology).args(DEFINES);
        command
    }

    fn server_command(&self, name: &str, host: &str, defines: &[&str]) -> Command {
        let at = SERVERS.iter().position(|known| *known == host).expect("a host of a server");
        let mut command = self.bed.host(FIRST + at).expect("a host").command(PATHCALL);
        command.args(["function", "serve", &function(), "--name", name, "--iface", "eth0"]);
        command.args(["--controller", &self.url()]).args(DEFINES).args(defines);
        command
    }

    pub fn serve(&mut self, name: &str) {
        let process = ready(&mut self.server_command(name, name, &[]));
        self.servers.insert(name.to_owned(), process);
    }

    pub fn stop(&mut self, name: &str) {
        stop(self.servers.remove(name).expect("connection to the service"));
    }

    pub fn kill(&mut self, name: &str) {
        drop(self.servers.remove(name).expect("connection to the service"));
    }

    pub fn stop_element(&mut self) {
        stop(self.element.take().expect("the program runs"));
    }

    /// Takes a server's interface down and up again.
    pub fn flap_link(&self, name: &str) {
        let at = SERVERS.iter().position(|known| *known == name).expect("a server");
        let (host, gateway) = (self.server_host(at), format!("10.77.{}.1", FIRST + at));
        run(&host, "ip link set eth0 down");
        run(&host, "ip link set eth0 up");
        // Routes are lost with the interface.
        run(&host, &format!("ip route add default via {gateway} dev eth0"));
    }

    /// Removes a server's interface.
    pub fn unplug(&self, name: &str) {
        let at = SERVERS.iter().position(|known| *known == name).expect("a server");
        run(&self.server_host(at), "ip link delete eth0");
    }

    pub fn change(&self, verb: &str, name: &str) {
        let output = self.node.command(PATHCALL).args(["function", verb, name, "--controller", &self.url()]).output();
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Status of the function's controller.
    pub fn status(&self) -> Value {
        let mut status = self.node.command(PATHCALL);
        let output = status.args(["function", "status", "--json", "--controller", &self.url()]).output();
        serde_json::from_slice(&output.expect("the program runs").stdout).expect("a status")
    }

    pub fn server(&self, name: &str) -> Value {
        let status = self.status();
        let found = status["servers"].as_array().expect("servers").iter().find(|server| server["name"] == name);
        found.expect("a server of that name").clone()
    }

    /// Waits until new flows go to these servers.
    pub fn until_group(&self, names: &[&str]) {
        until(&format!("the group is not {names:?}: {:#}", self.status()), || {
            let status = self.status();
            let servers = status["servers"].as_array()?.iter().filter(|server| server["in_group"] == true);
            servers.map(|server| server["name"].as_str()).eq(names.iter().map(|name| Some(*name))).then_some(())
        });
    }

    /// Waits until no flow of the previous group is left.
    pub fn until_steady(&self) {
        until("flows of the old group do not end", || (self.status()["changing"] == false).then_some(()));
    }

    /// Count of packets in the outside host's connection tracking.
    pub fn conntrack_count(&self, what: &str) -> u64 {
        let output = self.outside.command("nft").args(["-j", "list", "counter", "inet", "judge", what]).output();
        let printed: Value = serde_json::from_slice(&output.expect("nft").stdout).expect("JSON");
        printed["nftables"][1]["counter"]["packets"].as_u64().expect("a count")
    }

    /// Error message of a failing command.
    pub fn fails(&self, args: &[&str]) -> String {
        failed(self.node.command(PATHCALL).args(args))
    }

    pub fn server_fails(&self, name: &str, defines: &[&str]) -> String {
        failed(&mut self.server_command(name, name, defines))
    }

    /// Error message of a server on the host of another.
    pub fn server_fails_on(&self, host: &str, name: &str) -> String {
        failed(&mut self.server_command(name, host, &[]))
    }

    pub fn element_fails(&self) -> String {
        failed(&mut self.element_command())
    }

    /// Sets links to servers to the MTU of the networks.
    pub fn small_links(&self) {
        run(&self.node, &format!("ip link set h{FIRST} mtu {MTU}"));
    }
}

/// Further address of host 1.
pub fn address(block: usize, at: usize) -> String {
    format!("10.77.1.{}", 16 + block % BLOCKS * BLOCK + at % BLOCK)
}

pub fn function() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/snat.p4c").to_owned()
}

fn failed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1), "{command:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn run(node: &TestbedNode, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = node.command(words[0]).args(&words[1..]).output().expect("the program is installed");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn mac(node: &TestbedNode) -> String {
    let output = node.command("cat").arg("/sys/class/net/eth0/address").output().expect("cat");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// Starts the servers of the test traffic; they listen when this returns.
fn traffic_servers(outside: &TestbedNode) -> Vec<Process> {
    let address = outside.address().to_string();
    let mut servers = Vec::new();
    let mut ports = vec![super::traffic::HTTP, super::traffic::DNS];
    for port in super::traffic::IPERF {
        servers.push(start_silent(outside.command("iperf3").args(["-s", "-p", &port.to_string()])));
        ports.push(port);
    }
    let http = super::traffic::HTTP.to_string();
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions");
    let mut python = outside.command("python3");
    servers.push(start_silent(python.args(["-m", "http.server", &http, "--directory", pages])));
    let mut dns = outside.command("dnsmasq");
    dns.args(["--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null", "--pid-file=", "--user=root"]);
    dns.args(["--bind-interfaces", &format!("--listen-address={address}")]);
    servers.push(start_silent(dns.arg(format!("--address=/pathcall.test/{}", super::traffic::ANSWER))));
    until("the programs outside do not listen", || {
        let listening = outside.command("cat").arg("/proc/net/tcp").arg("/proc/net/tcp6").output().expect("cat");
        let listening = String::from_utf8(listening.stdout).expect("text");
        ports.iter().all(|port| listening.contains(&format!(":{port:04X} 0"))).then_some(())
    });
    servers
}
