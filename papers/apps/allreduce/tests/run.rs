//! Two hosts with two ranks each: all have the same bits, whoever added up what.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use allreduce::ring::{Config, Ring};
use allreduce::run::{Plan, Way, run, value};
use pathcall_place::Strategy;
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::model::{Hardware, Preset};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const FREE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn ports(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<_> = (0..count).map(|_| std::net::UdpSocket::bind(FREE).expect("a free port")).collect();
    sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect()
}

fn plan(name: &str, hosts: usize, ranks: usize, values: usize, acc: Option<&str>, strategy: Strategy) -> Plan {
    let name = format!("allreduce-test-{name}-{}", std::process::id());
    let acc = acc.map(|acc| acc.parse::<Choice>().expect("a device"));
    let (own, way) = ((0..hosts).collect(), Way::Ring(ports(hosts)));
    Plan { name, hosts, own, ranks, values, rounds: 2, acc, strategy, way }
}

/// A plain loop: ranks in their order, then hosts in that of the ring, for each part from where it begins.
fn sum(hosts: usize, ranks: usize, round: usize, at: usize) -> f32 {
    const PART: usize = 16 << 10;
    let of_host = |host| (1..ranks).fold(value(host, 0, round, at), |sum, rank| sum + value(host, rank, round, at));
    let order = |place| (at / PART + place) % hosts;
    (1..hosts).fold(of_host(order(0)), |sum, place| sum + of_host(order(place)))
}

fn expected(plan: &Plan) -> String {
    let digests = (0..plan.rounds).map(|round| {
        let values = (0..plan.values).flat_map(|at| sum(plan.hosts, plan.ranks, round, at).to_le_bytes());
        apps_report::digest([&values.collect::<Vec<u8>>()[..]].into_iter())
    });
    digests.collect::<Vec<_>>().join("-")
}

#[test]
fn ranks_of_hosts_have_the_bits_of_a_plain_loop() {
    for (hosts, ranks, values) in [(2, 2, 16 << 10), (2, 2, 100_003), (1, 2, 50_000), (3, 1, 70_000), (2, 1, 1)] {
        let plan = plan("cpu", hosts, ranks, values, None, Strategy::Leo);
        let outcome = run(&plan).expect("all come");
        assert_eq!(outcome.digest, expected(&plan), "{hosts} hosts, {ranks} ranks, {values} values");
        assert_eq!((outcome.parts_on_device, outcome.parts[1], outcome.failed), (0, 0, 0));
    }
}

#[test]
fn devices_that_add_up_change_no_bit() {
    let mut devices = vec!["emulated:per-job=50us"];
    match open(&Choice::OpenCl(0)) {
        Ok(_) => devices.push("opencl:0"),
        Err(error) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
    for device in devices {
        let plan = plan("acc", 2, 2, 300_001, Some(device), Strategy::RoundRobin);
        let outcome = run(&plan).expect("all come");
        assert_eq!(outcome.digest, expected(&plan), "{device}");
        let [cpu, acc] = outcome.parts;
        assert!(cpu > 0 && acc > 0, "{outcome:?}");
        assert_eq!(cpu + acc, 2 * 19, "one addition of each part in each round: {outcome:?}");
    }
}

#[test]
fn hosts_with_other_numbers_of_values_are_told() {
    let mut plans = [0, 1].map(|host| {
        let name = format!("other{host}");
        Plan { own: vec![host], ..plan(&name, 2, 1, 1000 + host, None, Strategy::Leo) }
    });
    plans[1].way = plans[0].way.clone();
    let said = std::thread::scope(|scope| {
        let runs = plans.each_ref().map(|plan| scope.spawn(move || run(plan)));
        runs.map(|run| run.join().expect("no panic").expect_err("they differ"))
    });
    for error in said {
        let said = format!("{error:#}");
        assert!(said.contains("a host asks for the sums of 1000 values, and host 1 for those of 1001"), "{said}");
    }
}

#[test]
fn a_call_after_one_that_failed_has_its_own_answers_only() {
    let at = ports(2);
    let rings = [0, 1].map(|host| {
        let hardware = Hardware::preset(Preset::Direct);
        let config = Config::new(host, 2, hardware, None, Strategy::Leo).expect("a processor");
        Ring::begin(config, at[host], at[1 - host]).expect("it begins")
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
        calls.into_iter().map(|call| call.join().expect("no panic").expect("they agree")).collect::<Vec<_>>()
    });
    let expected: Vec<f32> = (0..50_000).map(|at| (2 * at + 1) as f32).collect();
    assert!(sums.iter().all(|sums| *sums == expected));
}

#[test]
fn hosts_as_processes() {
    let at = ports(2).iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let host = |host: &str| {
        let arguments =
            ["--json", "--hosts", "2", "--host", host, "--at", &at, "--bytes", "65536,1000000", "--rounds", "2"];
        Command::new(ALLREDUCE).args(arguments).output().expect("it starts")
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
    let plan = plan("processes", 2, 2, 1_000_000 / 4, None, Strategy::Leo);
    assert_eq!(digests[0][1], Some(expected(&plan)));
}

fn through_map(extra: &[&str]) -> serde_json::Value {
    let arguments = ["--json", "--across", "map", "--bytes", "200000", "--rounds", "2"];
    let output = Command::new(ALLREDUCE).args(arguments).args(extra).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn through_map_with_an_element_and_without() {
    let both = |url: &str| [through_map(&[]), through_map(&["--controller", url])];
    let [without, with] = pathcall_test_support::element::by_element(both).await;
    assert_eq!(without["element_share"], 0.0, "{without}");
    assert!(with["element_share"].as_f64().is_some_and(|share| share > 0.5), "{with}");
    // Integers do not mind who adds them up, nor in which order: the sums of each host, rounded.
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
