//! Two processes on the loopback, a requester and a responder; then the responder is killed.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pathcall_place::context::remote::Remote;
#[cfg(target_os = "linux")]
use pathcall_place::context::window::SharedWindow;
use pathcall_place::context::{Builder, Event, PlaceContext, RequestMessage};
use pathcall_place::device::emulated::{Emulated, Rate};
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{ComputeDevice, TaskCode};
use pathcall_place::model::Preset;
use pathcall_place::{Application, DeviceRole, Hardware};

/// Timeout, reached only if the test hangs.
const LIMIT: Duration = Duration::from_secs(180);
/// Environment variable of the responder's process.
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

fn reverse() -> TaskCode {
    TaskCode::host(|input, output| {
        output.iter_mut().zip(input.iter().rev()).for_each(|(to, from)| *to = *from);
        Ok(input.len())
    })
}

/// Process of the responder: prints its address, and serves until it is killed.
#[test]
fn works() {
    if std::env::var_os(WORKS).is_none() {
        return;
    }
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), None).expect("a port");
    let rate = Rate { per_job: Duration::from_micros(20), ..Rate::default() };
    let devices: [Arc<dyn ComputeDevice>; 2] = [
        Arc::new(CpuPool::start(&PoolConfig::new(1)).expect("threads")),
        Arc::new(Emulated::start("test", rate, Vec::new()).expect("a thread")),
    ];
    let [cpu, acc] = devices;
    let mut builder = builder();
    #[cfg(target_os = "linux")]
    {
        let window = SharedWindow::create(&window_name(comm.address()), 64).expect("memory");
        builder = builder.reg_mem_func(Arc::new(window), "values", DeviceRole::Cpu);
    }
    println!("\nat {}", comm.address());
    std::io::stdout().flush().expect("standard output is readable");
    let context = builder
        .device(DeviceRole::Cpu, cpu)
        .device(DeviceRole::Acc, acc)
        .reg_app_func(reverse(), "reverse", DeviceRole::Cpu, 0)
        .reg_app_func(reverse(), "reverse", DeviceRole::Acc, 0)
        .reg_comm_func(comm, "udp", DeviceRole::Cpu)
        .init()
        .expect("context starts");
    let _server = context.spawn().expect("a thread");
    // Until the parent process ends, or kills this one.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Name of the shared window of the responder's process.
#[cfg(target_os = "linux")]
fn window_name(responder: SocketAddr) -> String {
    format!("place-test-{responder}")
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
    let mut child = command.spawn().expect("process starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let at = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("at ")?.parse().ok());
    (Killed(child), at.expect("process prints its address"))
}

fn ask(context: &mut PlaceContext, tag: u64, bytes: usize) {
    let kind = context.kind("REVERSE").expect("a type");
    let payload: Bytes = (0..bytes).map(|i| (i as u64 + tag) as u8).collect();
    context.send(RequestMessage { kind, address: 0, message: 0, tag, payload }).expect("room");
}

#[test]
fn context_survives_death_of_other_process() {
    let (worker, at) = worker();
    let context = |timeout| {
        let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(at)).expect("a port").timeout(timeout);
        builder().reg_comm_func(comm, "udp", DeviceRole::Cpu).init().expect("context starts")
    };
    let (mut context, mut hasty) = (context(LIMIT), context(Duration::from_millis(100)));
    for tag in 0..500 {
        ask(&mut context, tag, 1 + tag as usize * 7 % 5000);
        let Some(Event::Answer(answer)) = context.wait(LIMIT) else { panic!("no answer in time") };
        let bytes = 1 + tag as usize * 7 % 5000;
        let expected: Bytes = (0..bytes).rev().map(|i| (i as u64 + tag) as u8).collect();
        assert_eq!((answer.tag, answer.result), (tag, Ok(expected)));
        // Its four bytes contain the other process's time.
        let intra = answer.intra_ns.expect("measured");
        assert!(intra > 0 && intra <= answer.total_ns, "{intra} of {} ns", answer.total_ns);
    }
    let telemetry = context.telemetry();
    assert!(telemetry.paths.iter().all(|path| path.state.done > 0), "{telemetry}");
    drop(worker);
    ask(&mut hasty, 1000, 10);
    let Some(Event::Answer(answer)) = hasty.wait(LIMIT) else { panic!("no failure in time") };
    let failure = answer.result.expect_err("other side is unreachable").to_string();
    assert!(failure.contains("no answer from the other side"), "{failure}");
}

/// Result of the access that has ended.
#[cfg(target_os = "linux")]
fn accessed(event: Option<Event>) -> Result<Bytes, String> {
    let Some(Event::Accessed { result, .. }) = event else { panic!("no access has ended: {event:?}") };
    result.map_err(|error| error.to_string())
}

#[cfg(target_os = "linux")]
#[test]
fn attached_window_is_accessed_without_message() {
    let (worker, at) = worker();
    let window = Arc::new(SharedWindow::open(&window_name(at)).expect("window exists").timeout(LIMIT));
    let comm = Remote::bind((Ipv4Addr::LOCALHOST, 0).into(), Some(at)).expect("a port").timeout(LIMIT);
    let mut remote = builder().reg_comm_func(comm, "udp", DeviceRole::Cpu).init().expect("context starts");
    // Without a communication function, no message can be sent.
    let attach = |builder: Builder| builder.attach_window(Arc::clone(&window) as _, "values");
    let mut local = attach(builder()).init().expect("context starts");

    remote.write("values", 3, Bytes::from_static(b"abc"), 1).expect("room");
    assert_eq!(accessed(remote.wait(LIMIT)), Ok(Bytes::new()));
    local.read("values", 2, 5, 2).expect("room");
    assert_eq!(accessed(local.recv()), Ok(Bytes::from_static(b"\0abc\0")));
    local.write("values", 4, Bytes::from_static(b"xyz"), 3).expect("room");
    assert_eq!(accessed(local.recv()), Ok(Bytes::new()));
    remote.read("values", 3, 4, 4).expect("room");
    assert_eq!(accessed(remote.wait(LIMIT)), Ok(Bytes::from_static(b"axyz")));
    let mut bytes = [0; 4];
    let allocated = allocation_counter::measure(|| window.read(3, &mut bytes).expect("free"));
    assert_eq!((bytes, allocated.count_total), (*b"axyz", 0));

    let outside = "no device answered: access to 5 bytes at 60 exceeds window `values` of 64 bytes";
    for context in [&mut local, &mut remote] {
        context.read("values", 60, 5, 5).expect("room");
        assert_eq!(accessed(context.wait(LIMIT)), Err(outside.into()));
    }
    local.read("others", 0, 1, 6).expect("room");
    assert!(accessed(local.recv()).expect_err("not attached").contains("no communication function"));
    let twice = attach(attach(builder())).init().expect_err("attached twice").to_string();
    assert_eq!(twice, "two memories are attached as `values`");

    drop(worker);
    local.read("values", 0, 1, 7).expect("room");
    let ended = accessed(local.recv()).expect_err("owner is killed");
    let reason = format!("access to window `values` failed: the owner of shared window `{}` has ended", window.name());
    assert!(ended.ends_with(&reason), "{ended}");
}
