//! Placed calls on a host with two accelerators.

use super::*;

pub(crate) const TWO: &str = "hardware: two
nodes:
  cpu: { role: cpu }
  gpu: { role: acc }
  dpu: { role: acc }
  nic: { role: nic }
links:
  - { between: [cpu, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: 300 ns }
  - { between: [gpu, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: 300 ns }
  - { between: [dpu, nic], bandwidth: 10 GB/s, messages: 10 M/s, latency: 300 ns }
";

fn two() -> PlaceOptions {
    PlaceOptions::new(Hardware::parse("two.yaml", TWO).expect("a model"))
}

/// Starts a host whose devices share values; also returns its second accelerator.
async fn start(open: bool, with: impl FnOnce(PlaceOptions) -> PlaceOptions) -> (Host, Part) {
    let values = Values::default();
    let [cpu, acc, second] = std::array::from_fn(|_| Part::new(&values, open));
    let placing = two().acc(ShelfServer::new(acc.clone())).acc_at(1, ShelfServer::new(second.clone()));
    (Host::serve(cpu, acc, with(placing)).await, second)
}

#[tokio::test]
async fn calls_go_to_least_loaded_of_three_devices() {
    let (host, second) = start(false, |placing| placing).await;
    host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
    let calls: Vec<_> = (0..60).map(|_| host.get("k")).collect();
    let roles = [DeviceRole::Cpu, DeviceRole::Acc, DeviceRole::Acc1];
    let shares = || roles.map(|role| host.path_stats("GET", role).state.in_flight);
    timeout(HANG, until(|| shares().iter().sum::<u32>() == 60)).await.expect("no call has been answered");
    assert_eq!(shares(), [20; 3], "all take as long");
    [&host.cpu, &host.acc, &second].into_iter().for_each(|part| part.gate.add_permits(100));
    let mut by = BTreeMap::<String, u32>::new();
    for call in calls {
        let (slot, role) = in_time(call).await.unwrap();
        assert_eq!(slot.value, 7);
        *by.entry(role).or_default() += 1;
    }
    assert_eq!((by["cpu"], by["acc"], by["acc1"]), (20, 20, 20));
}

#[tokio::test]
async fn other_accelerator_answers_while_one_is_broken() {
    for fault in [Fault::Status(Code::Unavailable), Fault::Status(Code::Internal), Fault::Panic] {
        let (host, _) = start(true, |placing| placing.strategy(SelectionStrategy::AllAcc)).await;
        host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
        host.acc.set_fault(Some(fault));
        for _ in 0..10 {
            let calls: Vec<_> = (0..64).map(|_| host.get("k")).collect();
            for call in calls {
                let (slot, role) = in_time(call).await.unwrap_or_else(|status| panic!("{fault:?}: {status}"));
                assert_eq!((slot.value, role.as_str()), (7, "acc1"), "{fault:?}");
            }
        }
        let [acc, second] = [DeviceRole::Acc, DeviceRole::Acc1].map(|role| host.path_stats("GET", role).state);
        assert!(acc.failed > 0 && acc.done == 0 && acc.times_left > 0, "{fault:?}: {acc:?}");
        assert_eq!((second.failed, second.done), (0, 640), "{fault:?}: {second:?}");
        host.until_repaired_acc_is_used().await;
    }
}

#[tokio::test]
async fn every_call_is_answered_while_accelerators_hang_or_fail() {
    let options =
        |placing: PlaceOptions| placing.strategy(SelectionStrategy::AllAcc).acc_timeout(Duration::from_millis(50));
    for (one, other) in [(Some(Fault::Hang), None), (Some(Fault::Hang), Some(Fault::Panic))] {
        let (host, second) = start(true, options).await;
        host.cpu.values.lock().unwrap().insert(b"k".to_vec(), 7);
        host.acc.set_fault(one);
        second.set_fault(other);
        for _ in 0..5 {
            let calls: Vec<_> = (0..64).map(|_| host.get("k")).collect();
            for call in calls {
                assert_eq!(in_time(call).await.unwrap().0.value, 7);
            }
        }
    }
}

#[tokio::test]
async fn service_of_each_accelerator_is_required() {
    let part = || ShelfServer::new(Part::new(&Values::default(), true));
    let build = |placing| Layer::builder(&PLACED).place(placing).build();
    let error = build(two().acc(part())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "/rpctest.Shelf/Get has a dataflow over acc1, but rpctest.Shelf is missing there: add it with \
         PlaceOptions::acc_at"
    );
    let error = build(two().acc(part()).acc_at(1, part()).acc_at(2, part())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "accelerator 2 has a service, but two.yaml has 2 nodes with role acc, numbered from 0"
    );
}

#[tokio::test]
async fn pool_counts_slots_of_all_accelerators() {
    let part = || ShelfServer::new(Part::new(&Values::default(), true));
    let placing = two().acc(part()).acc_at(1, part());
    let server = Layer::builder(&BOTH).controller("http://127.0.0.1:1").place(placing).build().await.unwrap();
    assert_eq!(server.pool_stats().expect("it has a pool").workers, 3);
}
