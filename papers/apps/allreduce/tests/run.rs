//! Two hosts with two ranks each: all ranks have the same bits, on every path.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use allreduce::ring::{Config, Ring};
use allreduce::run::{ExchangeConfig, RunConfig, run, value};
use pathcall_place::SelectionStrategy;
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::model::{Hardware, Preset};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn ports(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<_> = (0..count).map(|_| std::net::UdpSocket::bind(FREE).expect("a free port")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect()
}

fn plan(
    name: &str,
    hosts: usize,
    ranks: usize,
    values: usize,
    acc: Option<&str>,
    strategy: SelectionStrategy,
) -> RunConfig {
    let name = format!("allreduce-test-{name}-{}", std::process::id());
    let acc = acc.map(|acc| acc.parse::<DeviceChoice>().expect("a device"));
    let (own, exchange) = ((0..hosts).collect(), ExchangeConfig::Ring(ports(hosts)));
    RunConfig { name, hosts, own, ranks, values, rounds: 2, acc, strategy, exchange }
}

/// Sum by a plain loop: ranks in order, then hosts in the order of the ring from the part's first host.
fn sum(hosts: usize, ranks: usize, round: usize, at: usize) -> f32 {
    const PART: usize = 16 << 10;
    let of_host = |host| (1..ranks).fold(value(host, 0, round, at), |sum, rank| sum + value(host, rank, round, at));
    let order = |place| (at / PART + place) % hosts;
    (1..hosts).fold(of_host(order(0)), |sum, place| sum + of_host(order(place)))
}

fn expected(plan: &RunConfig) -> String {
    let digests = (0..plan.rounds).map(|round| {
        let values = (0..plan.values).flat_map(|at| sum(plan.hosts, plan.ranks, round, at).to_le_bytes());
        apps_report::digest([&values.collect::<Vec<u8>>()[..]].into_iter())
    });
    digests.collect::<Vec<_>>().join("-")
}

#[test]
fn all_reduce_equals_plain_loop_bit_for_bit() {
    for (hosts, ranks, values) in [(2, 2, 16 << 10), (2, 2, 100_003), (1, 2, 50_000), (3, 1, 70_000), (2, 1, 1)] {
        let plan = plan("cpu", hosts, ranks, values, None, SelectionStrategy::Leo);
        let outcome = run(&plan).expect("sums");
        assert_eq!(outcome.digest, expected(&plan), "{hosts} hosts, {ranks} ranks, {values} values");
        assert_eq!((outcome.parts_on_device, outcome.parts[1], outcome.failed), (0, 0, 0));
    }
}

#[test]
fn device_sums_are_bit_identical_to_processor_sums() {
    let mut devices = vec!["emulated:per-job=50us"];
    match open(&DeviceChoice::OpenCl(0)) {
        Ok(_) => devices.push("opencl:0"),
        Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    for device in devices {
        let plan = plan("acc", 2, 2, 300_001, Some(device), SelectionStrategy::RoundRobin);
        let outcome = run(&plan).expect("sums");
        assert_eq!(outcome.digest, expected(&plan), "{device}");
        let [cpu, acc] = outcome.parts;
        assert!(cpu > 0 && acc > 0, "{outcome:?}");
        assert_eq!(cpu + acc, 2 * 19, "one addition of each part in each round: {outcome:?}");
    }
}

#[test]
fn hosts_with_different_value_counts_fail() {
    let mut plans = [0, 1].map(|host| {
        let name = format!("other{host}");
        RunConfig { own: vec![host], ..plan(&name, 2, 1, 1000 + host, None, SelectionStrategy::Leo) }
    });
    plans[1].exchange = plans[0].exchange.clone();
    let printed = std::thread::scope(|scope| {
        let runs = plans.each_ref().map(|plan| scope.spawn(move || run(plan)));
        runs.map(|run| run.join().expect("no panic").expect_err("different value counts"))
    });
    for error in printed {
        let printed = format!("{error:#}");
        assert!(printed.contains("the previous host sums 1000 values, host 1 sums 1001"), "{printed}");
    }
}

#[test]
fn call_after_failed_call_ignores_old_answers() {
    let at = ports(2);
    let rings = [0, 1].map(|host| {
        let hardware = Hardware::preset(Preset::Direct);
        let config = Config::new(host, 2, hardware, None, SelectionStrategy::Leo).expect("a processor");
        Ring::begin(config, at[host], at[1 - host]).expect("a ring")
    });
    let sums = std::thread::scope(|scope| {
        let calls = rings.into_iter().zip(0_usize..).map(|(mut ring, host)| {
            scope.spawn(move || {
                ring.all_reduce(&mut vec![1.0; 100_000 + host]).expect_err("the other has another number");
                let mut values: Vec<f32> = (0..50_000).map(|at| (at + host) as f32).collect();
                ring.all_reduce(&mut values).map(|()| values)
            })
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|call| call.join().expect("no panic").expect("sums")).collect::<Vec<_>>()
    });
    let expected: Vec<f32> = (0..50_000).map(|at| (2 * at + 1) as f32).collect();
    assert!(sums.iter().all(|sums| *sums == expected));
}

#[test]
fn hosts_in_separate_processes_have_equal_sums() {
    let at = ports(2).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let host = |host: &str| {
        let arguments =
            ["--json", "--hosts", "2", "--host", host, "--at", &at, "--bytes", "65536,1000000", "--rounds", "2"];
        Command::new(ALLREDUCE).args(arguments).output().expect("the process starts")
    };
    let outputs = std::thread::scope(|scope| ["0", "1"].map(|name| scope.spawn(move || host(name))).map(|t| t.join()));
    let digests = outputs.map(|output| {
        let output = output.expect("no panic");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("JSON");
        let digests = text.split("\"digest\":\"").skip(1).map(|rest| rest.split('"').next().map(str::to_owned));
        digests.collect::<Vec<_>>()
    });
    assert_eq!(digests[0].len(), 2);
    assert_eq!(digests[0], digests[1]);
    let plan = plan("processes", 2, 2, 1_000_000 / 4, None, SelectionStrategy::Leo);
    assert_eq!(digests[0][1], Some(expected(&plan)));
}

fn through_map(extra: &[&str]) -> serde_json::Value {
    let arguments = ["--json", "--across", "map", "--bytes", "200000", "--rounds", "2"];
    let output = Command::new(ALLREDUCE).args(arguments).args(extra).output().expect("the process starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn map_sums_are_equal_with_and_without_element() {
    let both = |url: &str| [through_map(&[]), through_map(&["--controller", url])];
    let [without, with] = pathcall_test_support::element::by_element(both).await;
    assert_eq!(without["element_share"], 0.0, "{without}");
    assert!(with["element_share"].as_f64().is_some_and(|share| share > 0.5), "{with}");
    // The order of integer additions does not matter: the sum of the rounded values of each host.
    let fixed = |round| {
        let values = (0..50_000).flat_map(|at| {
            let of_host = |host| f64::from(value(host, 0, round, at) + value(host, 1, round, at));
            let sum = [0, 1].map(|host| (of_host(host) * 1e6).round() as i64).iter().sum::<i64>();
            ((sum as f64 / 1e6) as f32).to_le_bytes()
        });
        apps_report::digest([&values.collect::<Vec<u8>>()[..]].into_iter())
    };
    let fixed = [fixed(0), fixed(1)].join("-");
    assert_eq!((with["digest"].as_str(), without["digest"].as_str()), (Some(&fixed[..]), Some(&fixed[..])));
}
