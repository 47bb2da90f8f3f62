//! Two processes on the loopback: one asks, one works; then the second is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::context::remote::Remote;
use pathcall_place::context::{Builder, Context, Event, Message};
use pathcall_place::device::emulated::{Emulated, Rate};
use pathcall_place::device::pool::{Pool, PoolConfig};
use pathcall_place::device::{Code, Device};
use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Role};

/// Reached only when something hangs.
const LIMIT: Duration = Duration::from_secs(180);
/// Set in the process that works.
const WORKS: &str = "PATHCALL_PLACE_TEST_WORKS";
const APPLICATION: &str = "application: reverse
tasks:
  reverse: { cpu: 20 us, acc: 20 us }
requests:
  REVERSE:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 64 B, reply: 64 B, responder: reverse }]
      - trips: [{ path: cpu-acc, bytes: 64 B, reply: 64 B, responder: reverse }]
";

fn builder() -> Builder {
    let application = Application::parse("reverse.yaml", APPLICATION).expect("right");
    Builder::new(application, Hardware::preset(Preset::Direct), Hardware::preset(Preset::Direct))
}

fn reverse() -> Code {
    Code::host(|input, output| {
        output.iter_mut().zip(input.iter().rev()).for_each(|(to, from)| *to = *from);
        Ok(input.len())
    })
}

/// The process that works: it says where, and works until it is killed.
#[test]
fn works() {
    if std::env::var_os(WORKS).is_none() {
        return;
    }
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), None).expect("a port");
    println!("\nat {}", comm.address());
    std::io::stdout().flush().expect("somebody reads");
    let rate = Rate { per_job: Duration::from_micros(20), ..Rate::default() };
    let devices: [Arc<dyn Device>; 2] = [
        Arc::new(Pool::start(&PoolConfig::new(1)).expect("threads")),
        Arc::new(Emulated::start("test", rate, Vec::new()).expect("a thread")),
    ];
    let [cpu, acc] = devices;
    let context = builder()
        .device(Role::Cpu, cpu)
        .device(Role::Acc, acc)
        .reg_app_func(reverse(), "reverse", Role::Cpu, 0)
        .reg_app_func(reverse(), "reverse", Role::Acc, 0)
        .reg_comm_func(comm, "udp", Role::Cpu)
        .init()
        .expect("it begins");
    let _server = context.spawn().expect("a thread");
    // Until whoever started it goes, or kills it.
    let _ = std::io::stdin().read_line(&mut String::new());
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker() -> (Killed, SocketAddr) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["two_processes::works", "--exact", "--nocapture"])
        .env(WORKS, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let at = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("at ")?.parse().ok());
    (Killed(child), at.expect("it says where"))
}

fn ask(context: &mut Context, tag: u64, bytes: usize) {
    let kind = context.kind("REVERSE").expect("a type");
    let payload: Bytes = (0..bytes).map(|i| (i as u64 + tag) as u8).collect();
    context.send(Message { kind, address: 0, message: 0, tag, payload }).expect("room");
}

#[test]
fn two_processes_and_then_one() {
    let (worker, at) = worker();
    let context = |timeout| {
        let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(at)).expect("a port").timeout(timeout);
        builder().reg_comm_func(comm, "udp", Role::Cpu).init().expect("it begins")
    };
    let (mut context, mut hasty) = (context(LIMIT), context(Duration::from_millis(100)));
    for tag in 0..500 {
        ask(&mut context, tag, 1 + tag as usize * 7 % 5000);
        let Some(Event::Answer(answer)) = context.wait(LIMIT) else { panic!("no answer in time") };
        let bytes = 1 + tag as usize * 7 % 5000;
        let expected: Bytes = (0..bytes).rev().map(|i| (i as u64 + tag) as u8).collect();
        assert_eq!((answer.tag, answer.result), (tag, Ok(expected)));
        // The other process's part is in its four bytes.
        let intra = answer.intra_ns.expect("measured");
        assert!(intra > 0 && intra <= answer.total_ns, "{intra} of {} ns", answer.total_ns);
    }
    let telemetry = context.telemetry();
    assert!(telemetry.paths.iter().all(|path| path.state.done > 0), "{telemetry}");
    drop(worker);
    ask(&mut hasty, 1000, 10);
    let Some(Event::Answer(answer)) = hasty.wait(LIMIT) else { panic!("no failure in time") };
    let failure = answer.result.expect_err("nobody is there").to_string();
    assert!(failure.contains("the other side does not answer"), "{failure}");
}
