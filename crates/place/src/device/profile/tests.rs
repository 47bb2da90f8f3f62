use std::sync::Mutex;

use super::*;
use crate::device::emulated::{Emulated, Rate};
use crate::device::pool::{CpuPool, PoolConfig};
use crate::device::{DeviceInfo, RefusedJob};
use crate::model::Hardware;

const SOON: Duration = Duration::from_millis(20);

/// Pauses of the machine make times longer, never shorter: they are at least those of the device.
#[test]
fn profile_of_emulated_device_matches_its_rate() {
    let (per_job, latency) = (Duration::from_millis(1), Duration::from_millis(2));
    let rate = Rate { per_job, latency, ..Rate::default() };
    let device = Emulated::start("test", rate, Vec::new()).expect("a thread");
    let function = device.load("f", &TaskCode::host(|_, _| Ok(0))).expect("loaded");
    let request = Bytes::from_static(b"x");
    let measured = compute(&device, function, &request, 8, Duration::from_millis(100)).expect("measured");
    println!("{measured:?}");
    assert!(measured.latency_ns >= 3_000_000 && measured.busy_ns >= 1_000_000, "{measured:?}");
    assert_eq!(measured.job_ns, measured.busy_ns.min(measured.latency_ns), "jobs run one at a time");
}

#[test]
fn profile_of_device_with_slots_has_job_and_busy_time() {
    let (per_job, latency) = (Duration::from_millis(2), Duration::from_millis(1));
    let device = Emulated::start("test", Rate { slots: 4, per_job, latency, ..Rate::default() }, Vec::new());
    let device = device.expect("a thread");
    let function = device.load("f", &TaskCode::host(|_, _| Ok(0))).expect("loaded");
    let measured = compute(&device, function, &Bytes::new(), 8, Duration::from_millis(100)).expect("measured");
    println!("{measured:?}");
    assert!(measured.busy_ns >= 490_000, "{measured:?}");
    assert!(measured.job_ns >= 1_960_000 && measured.job_ns <= measured.latency_ns, "{measured:?}");
    assert_eq!(measured.job_ns, (4 * measured.busy_ns).min(measured.latency_ns));
}

/// Device that completes its jobs only when it has twice as many as slots.
#[derive(Debug)]
struct Full(DeviceInfo, Mutex<(usize, Vec<Job>)>);

impl ComputeDevice for Full {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }

    fn load(&self, _: &str, _: &TaskCode) -> Result<FunctionId, DeviceError> {
        Ok(FunctionId(0))
    }

    fn register(&self, input_max: usize, output_max: usize) -> Result<Region, DeviceError> {
        Ok(Region::heap(input_max, output_max))
    }

    fn submit(&self, job: Job) -> Result<(), RefusedJob> {
        let (taken, held) = &mut *self.1.lock().expect("no panic");
        *taken += 1;
        held.push(job);
        if *taken >= 2 * self.0.slots {
            held.drain(..).for_each(|job| Completion::now(job.tag, Some(job.region), Ok(0)).send(&job.done));
        }
        Ok(())
    }
}

/// With fewer jobs in flight no job would be completed.
#[test]
fn busy_measurement_keeps_two_jobs_per_slot_in_flight() {
    for slots in [8, 9, 100] {
        let (jobs_max, in_order) = (1024, false);
        let info = DeviceInfo { kind: DeviceKind::Emulated, name: "full".into(), slots, jobs_max, in_order };
        let device = Full(info, Mutex::default());
        let mut run = Run::new(&device, FunctionId(0), Bytes::new(), 8).expect("memory");
        assert!(run.busy(Duration::ZERO).is_ok_and(|busy_ns| busy_ns > 0));
    }
}

#[test]
fn measured_machine_parses_as_model() {
    let pool = CpuPool::start(&PoolConfig::new(1)).expect("threads");
    let measured = measure([&pool as &dyn ComputeDevice; 2], SOON).expect("measured");
    let links = model(&measured);
    assert_eq!(links.len(), 3);
    let alone = model(&MeasuredMachine { accelerators: Vec::new(), ..measured });
    assert_eq!(alone, links[..1]);
}

/// A pause of the machine during any measurement still gives a valid model.
#[test]
fn any_measurement_parses_as_model() {
    const TIMES_NS: [u64; 4] = [0, 1, 30_000, 20_000_000_000];
    for (alone, short, long) in TIMES_NS.into_iter().flat_map(|alone| {
        TIMES_NS.into_iter().flat_map(move |short| TIMES_NS.into_iter().map(move |long| (alone, short, long)))
    }) {
        let nic = TransferProfile::from_round_times(alone, short, long, 20_000);
        let accelerators = vec![MeasuredAccelerator { name: "a".into(), slots: 1, link: nic }];
        model(&MeasuredMachine { name: "still".into(), threads: 2, nic, accelerators });
    }
}

/// Links of the model's file, which must equal the measured ones.
fn model(measured: &MeasuredMachine) -> Vec<TransferProfile> {
    let text = measured.to_string();
    let hardware = Hardware::parse("measured.yaml", &text).unwrap_or_else(|mistake| panic!("{mistake}\n{text}"));
    let links = hardware.links.iter().map(|link| TransferProfile {
        bytes_per_second: link.bytes_per_second,
        messages_per_second: link.messages_per_second,
        latency_ns: link.latency_ns,
    });
    let links: Vec<_> = links.collect();
    let expected: Vec<_> = [measured.nic].into_iter().chain(measured.accelerators.iter().map(|acc| acc.link)).collect();
    assert_eq!(links, expected, "{text}");
    links
}

#[test]
fn profile_of_failing_function_is_error() {
    let pool = CpuPool::start(&PoolConfig::new(1)).expect("threads");
    let function =
        pool.load("f", &TaskCode::host(|_, _| Err(crate::device::AppError("never".into())))).expect("loaded");
    let message = compute(&pool, function, &Bytes::new(), 8, SOON).expect_err("expected an error").to_string();
    assert_eq!(message, "cpu: never");
}
