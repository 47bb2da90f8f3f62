//! Contexts with several accelerators, of the same and of different kinds.

use super::*;
use crate::several_accelerators;
use pathcall_place::context::remote::Remote;
use std::net::Ipv4Addr;

/// Context with these accelerators, each with its code.
fn several(accelerators: Vec<(Arc<dyn ComputeDevice>, TaskCode)>) -> Builder {
    let hardware = || several_accelerators::host(accelerators.len());
    let builder = Builder::new(application(), hardware(), hardware()).limits(patient()).device(DeviceRole::Cpu, pool());
    let builder = builder.reg_app_func(host(), "add", DeviceRole::Cpu, 0);
    accelerators.into_iter().enumerate().fold(builder, |builder, (number, (device, code))| {
        let role = DeviceRole::acc(number).expect("at most seven");
        builder.device(role, device).reg_app_func(code, "add", role, 0)
    })
}

fn with_faults(faults: Vec<PlantedFault>) -> (Arc<dyn ComputeDevice>, TaskCode) {
    (emulated(faults), host())
}

fn started(builder: Builder) -> PlaceContext {
    builder.reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu).init().expect("context starts")
}

#[test]
fn devices_of_all_kinds_answer_their_share_in_turn() {
    let source = "kernel void add(global const uchar *input, uint input_bytes, global uchar *output, uint max) {\n\
                  uint i = get_global_id(0);\n  if (i < input_bytes && i < max) output[i] = input[i] + 7;\n}";
    let mut devices = vec![with_faults(Vec::new()), with_faults(Vec::new()), (pool(), host())];
    let mut present = accelerators();
    for device in present.by_ref() {
        let code = code(kernel(source, "add", AnswerLength::AsInput), &*device);
        devices.push((device, code));
    }
    let count = devices.len();
    let mut context = started(several(devices).strategy(Choose::RoundRobin));
    let inputs = inputs(60 * (1 + count));
    assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
    let telemetry = context.telemetry();
    assert_eq!(telemetry.devices.len(), 1 + count);
    for (device, role) in telemetry.devices.iter().zip(DeviceRole::ALL) {
        assert_eq!((device.role, device.stats.done, device.stats.failed), (role, 60, 0), "{telemetry}");
    }
    let told: Vec<_> = context.explain(1 + count).map(|line| line.to_string()).collect();
    assert!(told.iter().any(|line| line.contains("cpu-acc2 (lowest cost)")), "{told:?}");
}

#[test]
fn ordered_requests_stay_in_order_over_several_accelerators() {
    for strategy in [Choose::Leo, Choose::Late] {
        let mut context = started(several(vec![with_faults(Vec::new()), with_faults(Vec::new())]).strategy(strategy));
        for kind in ["ORDERED", "TWICE"] {
            let inputs = inputs(300);
            let answers = all(&mut context, kind, &inputs);
            if kind == "ORDERED" {
                assert_sums(&answers, &inputs);
            }
            assert!(answers.iter().all(|answer| answer.result.is_ok() && answer.attempts == 1));
        }
    }
}

#[test]
fn other_host_runs_requests_on_accelerator_that_they_name() {
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let works = Remote::bind(free, None).expect("a port");
    let asks = Remote::bind(free, Some(works.address())).expect("a port").timeout(LIMIT);
    let devices = (0..3).map(|_| with_faults(Vec::new())).collect();
    let server = several(devices).reg_comm_func(works, "works", DeviceRole::Cpu).init().expect("context starts");
    let server = server.spawn().expect("a thread");
    let hardware = || several_accelerators::host(3);
    let builder = Builder::new(application(), hardware(), hardware()).limits(patient()).strategy(Choose::RoundRobin);
    let mut context = builder.reg_comm_func(asks, "asks", DeviceRole::Cpu).init().expect("context starts");
    let inputs = inputs(200);
    let answers = all(&mut context, "ADD", &inputs);
    assert_sums(&answers, &inputs);
    let telemetry = server.stop().expect("no panic").telemetry();
    let done: Vec<u64> = telemetry.devices.iter().map(|device| device.stats.done).collect();
    assert_eq!(done, [50; 4]);
}

#[test]
fn failing_accelerator_does_not_take_the_other_one_down() {
    for strategy in [Choose::Leo, Choose::Late, Choose::RoundRobin, Choose::AllAcc] {
        let fails = with_faults(vec![PlantedFault::forever(3, EmulatedFault::Fails)]);
        let mut context = started(several(vec![fails, with_faults(Vec::new())]).strategy(strategy));
        let inputs = inputs(400);
        for kind in ["ADD", "ACC", "ORDERED"] {
            assert_sums(&all(&mut context, kind, &inputs), &inputs);
        }
        let telemetry = context.telemetry();
        let [first, second] = [1, 2].map(|device| telemetry.devices[device].stats);
        assert!(first.failed > 0 && first.done <= 3, "{}: {telemetry}", strategy.name());
        // Type ACC has no path over the processor.
        assert!(second.failed == 0 && second.done >= 390, "{}: {telemetry}", strategy.name());
        let left =
            |name| telemetry.paths.iter().filter(move |path| path.name == name).map(|path| path.state.times_left);
        assert_eq!(left("cpu-acc1").sum::<u64>(), 0, "{}: {telemetry}", strategy.name());
    }
}

#[test]
fn disappearing_accelerator_loses_no_request() {
    let gone = with_faults(vec![PlantedFault::forever(3, EmulatedFault::Disappears)]);
    let builder = several(vec![gone, with_faults(Vec::new())]).limits(hasty()).strategy(Choose::RoundRobin);
    let mut context = started(builder);
    let inputs = inputs(300);
    assert_sums(&all(&mut context, "ADD", &inputs), &inputs);
    assert_sums(&all(&mut context, "ACC", &inputs), &inputs);
    let telemetry = context.telemetry();
    assert!(telemetry.devices[1].stats.stalled > 0 && telemetry.devices[2].stats.done > 100, "{telemetry}");
}

#[test]
fn missing_function_of_second_accelerator_is_error_of_init() {
    let hardware = || several_accelerators::host(2);
    let builder = Builder::new(application(), hardware(), hardware()).device(DeviceRole::Cpu, pool());
    let builder =
        builder.reg_app_func(host(), "add", DeviceRole::Cpu, 0).device(DeviceRole::Acc1, emulated(Vec::new()));
    let mistake = builder.init().expect_err("no function").to_string();
    assert_eq!(mistake, "sums.yaml: `add` runs on acc1, but no function is registered for it: call reg_app_func");
}

#[test]
fn each_accelerator_has_its_measured_time() {
    let text = APPLICATION.replace("add: { cpu: 20 us, acc: 20 us }", "add: { cpu: 20 us, acc0: 20 us }");
    let hardware = || several_accelerators::host(2);
    let build = |sampled: bool| {
        let application = Application::parse("sums.yaml", &text).expect("right");
        let builder = Builder::new(application, hardware(), hardware()).device(DeviceRole::Cpu, pool());
        let builder = [DeviceRole::Acc, DeviceRole::Acc1].into_iter().fold(builder, |builder, role| {
            builder.device(role, emulated(Vec::new())).reg_app_func(host(), "add", role, 0)
        });
        let builder = builder.reg_app_func(host(), "add", DeviceRole::Cpu, 0);
        if sampled { builder.sample("add", Bytes::from_static(b"four")) } else { builder }.init()
    };
    let mistake = build(false).expect_err("unknown").to_string();
    assert!(
        mistake.ends_with("the compute time of `add` on acc1 is unknown; profile it, or set it in `tasks`"),
        "{mistake}"
    );
    build(true).expect("measured");
}
