//! Tests of an element's memory that applications share: fair shares of many applications, idle ones, and sums whose
//! memory shrinks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pathcall_control::state::memory_bytes;
use pathcall_control::{Config, Handle, LeaseTiming, MemoryPolicy};
use pathcall_proto::manifest::{ClearPolicy, Kind, Manifest, Method};
use pathcall_proto::types::FpArray;
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::{ApplicationStatus, NoMemoryReason, StatusReply, StatusRequest};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{TestServer, counts, str_int};
use pathcall_test_support::stubs::rounds::rounds_client::RoundsClient;
use pathcall_test_support::stubs::rounds::{PATHCALL as ROUNDS, Part};
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::time::timeout;

const FREE: &str = "127.0.0.1:0";

/// Controller, and an element of this size.
pub(crate) async fn network(policy: MemoryPolicy, rows: usize, lanes: usize) -> (Handle, pathcall_element::Handle) {
    let listener = pathcall_control::bind(FREE.parse().unwrap()).await.unwrap();
    let timing = LeaseTiming { grace: HANG, restart_grace: HANG, confirm: HANG };
    let config = Config::default().memory(policy).timing(timing).keep_alive(HANG);
    let controller = pathcall_control::serve(listener, config).await.unwrap();
    let free = FREE.parse().unwrap();
    let mut config = pathcall_element::Config::default().data(free).control(free).controller(Some(controller.url()));
    (config.size.rows, config.size.lanes) = (rows, lanes);
    let element = pathcall_element::run(config).await.expect("an element");
    (controller, element)
}

/// Status of the controller, once it fulfils a condition.
pub(crate) async fn until(controller: &Handle, mut condition: impl FnMut(&StatusReply) -> bool) -> StatusReply {
    let mut client = ControllerClient::connect(controller.url()).await.expect("a controller");
    let holds = async {
        loop {
            let status = client.status(StatusRequest {}).await.expect("its status").into_inner();
            if condition(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(HANG, holds).await.expect("the condition holds in time")
}

fn of<'a>(status: &'a StatusReply, name: &str) -> Option<&'a ApplicationStatus> {
    status.applications.iter().find(|application| application.name == name)
}

fn rows(application: &ApplicationStatus) -> u32 {
    application.memory.as_ref().map_or(0, |memory| memory.rows)
}

/// Methods of an application under another name.
fn renamed(manifest: &'static Manifest, app: &str, name: &str, clear: Option<ClearPolicy>) -> &'static Manifest {
    let name: &'static str = name.to_owned().leak();
    let digest = name.bytes().fold(7u64, |digest, byte| digest.wrapping_mul(31) + u64::from(byte));
    let method = |method: &Method| {
        let kind = match (method.kind, clear) {
            (Kind::Sum { threshold, .. }, Some(clear)) => Kind::Sum { threshold, clear },
            (kind, _) => kind,
        };
        Method { app: name, digest, kind, ..*method }
    };
    let methods: Vec<_> = manifest.methods.iter().filter(|method| method.app == app).map(method).collect();
    assert!(!methods.is_empty(), "{app}");
    Box::leak(Box::new(Manifest { methods: methods.leak(), ..*manifest }))
}

/// Jain's index of fairness: 1 if all values are equal, 1/n if one has everything.
fn jains_index(values: &[f64]) -> f64 {
    let (sum, squares) = (values.iter().sum::<f64>(), values.iter().map(|value| value * value).sum::<f64>());
    sum * sum / (values.len() as f64 * squares)
}

/// Weighted max-min, row by row: rows of applications by (requested rows, width, weight).
fn ideal_rows(size: (u32, u32), claims: &[(u32, u32, u32)]) -> Vec<u32> {
    let mut rows = vec![0u32; claims.len()];
    loop {
        let level = |i: usize| memory_bytes(rows[i] + 1, claims[i].1) as f64 / f64::from(claims[i].2);
        let wanting = (0..claims.len()).filter(|&i| rows[i] < claims[i].0);
        let Some(next) = wanting.min_by(|&a, &b| level(a).total_cmp(&level(b))) else { return rows };
        rows[next] += 1;
        let lanes: u32 = rows.iter().zip(claims).map(|(rows, claim)| rows * claim.1).sum();
        if rows.iter().sum::<u32>() > size.0 || lanes > size.1 {
            rows[next] -= 1;
            return rows;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_mixed_applications_share_memory_fairly() {
    const SIZE: (u32, u32) = (8192, 262_144);
    // Sums, keyed additions, locks, and ballots; a quarter of them each.
    const KINDS: [(&str, u32); 4] = [("T-SUM", 256), ("T-WORDS", 64), ("T-LOCKS", 1), ("T-ELECT", 1)];
    const REQUESTED: [u32; 5] = [4096, 1024, 40, 2048, 512];
    let claims: Vec<_> = (0..20).map(|i| (REQUESTED[i / 4], KINDS[i % 4].1, 1 + (i as u32 * 7) % 3)).collect();
    let name = |i: usize| format!("{}-{i:02}", KINDS[i % 4].0);
    let weights = claims.iter().enumerate().map(|(i, claim)| (name(i), claim.2)).collect();
    let policy = MemoryPolicy { weights, ..MemoryPolicy::default() };
    let (controller, _element) = network(policy, SIZE.0 as usize, SIZE.1 as usize).await;
    let mut owners = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let manifest = renamed(&PATHCALL, KINDS[i % 4].0, &name(i), None);
        owners.push(Layer::builder(manifest).controller(controller.url()).memory(claim.0).build().await.unwrap());
    }
    let ideal = ideal_rows(SIZE, &claims);
    let ratios = |status: &StatusReply| -> Vec<f64> {
        let ratio = |(i, ideal): (usize, &u32)| f64::from(of(status, &name(i)).map_or(0, rows)) / f64::from(*ideal);
        ideal.iter().enumerate().map(ratio).collect()
    };
    let settled = until(&controller, |status| ratios(status).iter().all(|ratio| *ratio >= 0.8)).await;
    let (all, settled) = (jains_index(&ratios(&settled)), settled.applications);
    // Of those that want more than they have, by bytes for each unit of weight.
    let unsatisfied = settled.iter().filter(|application| rows(application) < application.requested_rows);
    let weighted: Vec<_> =
        unsatisfied.map(|application| application.memory_bytes as f64 / f64::from(application.weight)).collect();
    let index = jains_index(&weighted);
    println!("Jain's index: {index:.4} of {} that want more, {all:.4} of all against the ideal", weighted.len());
    assert!(weighted.len() >= 8 && index >= 0.95 && all >= 0.95, "{index} {all} {weighted:?}");
    let used: u32 = settled.iter().map(rows).sum();
    let lanes: u32 = settled.iter().map(|one| rows(one) * one.memory.as_ref().map_or(0, |memory| memory.width)).sum();
    assert!(used > SIZE.0 * 9 / 10 || lanes > SIZE.1 * 9 / 10, "{used} rows and {lanes} lanes are used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_application_gives_memory_back_until_its_next_call() {
    let idle = Duration::from_millis(400);
    let policy = MemoryPolicy { idle, idle_max: idle, ..MemoryPolicy::default() };
    let (controller, _element) = network(policy, 1024, 1024 * 64).await;
    let manifest = renamed(&PATHCALL, "T-WORDS", "T-IDLE", None);
    let layer = Layer::builder(manifest).controller(controller.url()).memory(64).build().await.unwrap();
    let server = TestServer::start_with(layer, 0).await;
    let channel = Channel::connect(server.uri(), manifest).await.unwrap();
    let mut words = WordsClient::new(channel);
    for round in 1..=3 {
        // The call may still find an element, or work in software; both are right.
        words.reduce(counts(&[("a", 1), ("b", 2)], "")).await.unwrap();
        until(&controller, |status| status.applications[0].memory.is_some()).await;
        words.reduce(counts(&[("a", 1), ("b", 2)], "")).await.unwrap();
        let is_idle = |status: &StatusReply| status.applications[0].no_memory_reason() == NoMemoryReason::Idle;
        let status = until(&controller, is_idle).await;
        let application = &status.applications[0];
        assert_eq!((rows(application), application.requested_rows), (0, 0), "round {round}");
        let wanted = Wanted { keys: Some(str_int(&[("a", 0), ("b", 0)])), ..Wanted::default() };
        let found = words.query(wanted).await.unwrap().into_inner().kvs.unwrap().map;
        assert_eq!((found.get("a"), found.get("b")), (Some(&(2 * round)), Some(&(4 * round))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_stay_exact_while_their_memory_shrinks() {
    const ROWS: u32 = 64;
    for clear in [ClearPolicy::Copy, ClearPolicy::Shadow, ClearPolicy::Lazy] {
        let name = format!("T-SHRINKS-{clear:?}");
        let policy = MemoryPolicy { weights: [("T-HEAVY".to_owned(), 3)].into(), ..MemoryPolicy::default() };
        let (controller, _element) = network(policy, ROWS as usize, ROWS as usize * 256).await;
        let manifest = renamed(&ROUNDS, "T-SHADOW", &name, Some(clear));
        let layer = Layer::builder(manifest).controller(controller.url()).memory(ROWS).build().await.unwrap();
        let server = TestServer::start_with(layer, 0).await;
        let channels = [Channel::connect(server.uri(), manifest).await, Channel::connect(server.uri(), manifest).await];
        let [a, b] = channels.map(|channel| RoundsClient::new(channel.expect("a channel")));
        let over = AtomicBool::new(false);
        let operator = async {
            let rows_of = |status: &StatusReply, name| of(status, name).map_or(0, rows);
            until(&controller, |status| rows_of(status, &name) == ROWS).await;
            let heavy = renamed(&PATHCALL, "T-SUM", "T-HEAVY", None);
            let heavy = Layer::builder(heavy).controller(controller.url()).memory(ROWS).build().await.unwrap();
            let status = until(&controller, |status| rows_of(status, "T-HEAVY") > ROWS / 2).await;
            assert_eq!((rows_of(&status, &name), rows_of(&status, "T-HEAVY")), (ROWS / 4, ROWS * 3 / 4));
            // The smaller part is used.
            let added = |status: &StatusReply| {
                let counters = status.elements[0].counters.as_ref()?;
                counters.applications.get(&of(status, &name)?.gaid)?.counters.get("lanes_added").copied()
            };
            until(&controller, |status| added(status).is_some_and(|lanes| lanes > 0)).await;
            over.store(true, Ordering::Relaxed);
            drop(heavy);
        };
        let workers = async { tokio::join!(sum_until(a, &over), sum_until(b, &over), operator) };
        let (a, b, ()) = timeout(HANG, workers).await.expect("all sums in time");
        assert_eq!(a, b, "{clear:?}");
    }
}

/// Sums arrays, longer than the rows of the element, until `over`. Both workers make the same number of calls: the first
/// value of each sum says whether another one follows.
async fn sum_until(mut stub: RoundsClient<Channel>, over: &AtomicBool) -> usize {
    const VALUES: usize = 80 * 256;
    let mut sums = 0;
    loop {
        let last = f64::from(u8::from(over.load(Ordering::Relaxed)));
        let data: Vec<f64> = (0..VALUES).map(|i| if i == 0 { last } else { (i + sums) as f64 }).collect();
        let total = stub.add(Part { values: Some(FpArray { data }) }).await.expect("a sum").into_inner();
        let got = total.values.expect("sums").data;
        assert!(got[1..].iter().enumerate().all(|(i, sum)| *sum == 2.0 * (i + 1 + sums) as f64));
        sums += 1;
        if got[0] > 0.0 {
            return sums;
        }
    }
}
