//! Two contexts: a requester and a responder.

use std::net::Ipv4Addr;

use super::*;
use pathcall_place::context::remote::Remote;
use pathcall_place::context::window::HostWindow;

/// Runs a requester and a responder until the responder ends; returns the requester.
fn two(asks: impl comm::CommFunction + 'static, works: impl comm::CommFunction + 'static) -> PlaceContext {
    let hardware = || Hardware::preset(Preset::Direct);
    let window = Arc::new(HostWindow::new(vec![0; 64]));
    let server = builder(emulated(Vec::new()), host())
        .reg_comm_func(works, "works", DeviceRole::Cpu)
        .reg_mem_func(window, "values", DeviceRole::Cpu)
        .init()
        .expect("context starts")
        .spawn()
        .expect("a thread");
    let asks = Builder::new(application(), hardware(), hardware()).reg_comm_func(asks, "asks", DeviceRole::Cpu);
    let mut context = asks.limits(patient()).init().expect("context starts");
    let mut attempts = 0;
    for (kind, inputs) in [("ADD", inputs(400)), ("ORDERED", inputs(400)), ("ADD", vec![vec![9; 300_000]])] {
        let answers = all(&mut context, kind, &inputs);
        assert_sums(&answers, &inputs);
        attempts += answers.iter().map(|answer| u64::from(answer.attempts)).sum::<u64>();
    }
    assert!(matches!(all(&mut context, "ADD", &[vec![255]])[0].result, Err(RequestError::App(_))));
    let accessed = |context: &mut PlaceContext| match context.wait(LIMIT).expect("in time") {
        Event::Accessed { tag, result } => (tag, result),
        other => panic!("{other:?}"),
    };
    context.write("values", 3, Bytes::from_static(b"abc"), 1).expect("room");
    assert_eq!(accessed(&mut context), (1, Ok(Bytes::new())));
    context.read("values", 2, 5, 2).expect("room");
    assert_eq!(accessed(&mut context), (2, Ok(Bytes::from_static(b"\0abc\0"))));
    context.read("values", 60, 5, 3).expect("room");
    let refused = accessed(&mut context).1.expect_err("outside").to_string();
    assert!(refused.contains("access to 5 bytes at 60 exceeds window `values` of 64 bytes"), "{refused}");
    let done: u64 = server.stop().expect("no panic").telemetry().devices.iter().map(|device| device.stats.done).sum();
    assert!((801..=attempts).contains(&done), "{done} jobs of {attempts} messages");
    context
}

/// Requests fail after the end of the other side, and do not hang.
fn assert_gone(context: &mut PlaceContext) {
    let gone = all(context, "ADD", &[vec![1]]).remove(0);
    assert!(matches!(gone.result, Err(RequestError::Failed(_))), "{gone:?}");
}

#[test]
fn two_contexts_communicate_within_process() {
    let (asks, works) = InProcess::pair();
    assert_gone(&mut two(asks, works));
}

#[test]
fn two_contexts_communicate_over_loopback() {
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let works = Remote::bind(free, None).expect("a port");
    let asks = Remote::bind(free, Some(works.address())).expect("a port").timeout(LIMIT);
    two(asks, works);
}

#[test]
fn request_to_absent_peer_fails() {
    let free = (Ipv4Addr::LOCALHOST, 0).into();
    let gone = Remote::bind(free, None).expect("a port").address();
    let asks = Remote::bind(free, Some(gone)).expect("a port").timeout(Duration::from_millis(50));
    let hardware = || Hardware::preset(Preset::Direct);
    let asks = Builder::new(application(), hardware(), hardware()).reg_comm_func(asks, "asks", DeviceRole::Cpu);
    assert_gone(&mut asks.init().expect("context starts"));
}

/// Late binding in a live context: all answers, in order where that is needed, and the learnt times are shown.
#[test]
fn late_binding_answers_all_and_shows_learnt_times() {
    let mut context = builder(emulated(Vec::new()), host())
        .reg_comm_func(InProcess::itself(), "itself", DeviceRole::Cpu)
        .limits(patient())
        .strategy(pathcall_place::SelectionStrategy::Late)
        .init()
        .expect("context starts");
    for kind in ["ADD", "ORDERED"] {
        let inputs = inputs(400);
        assert_sums(&all(&mut context, kind, &inputs), &inputs);
    }
    let telemetry = context.telemetry();
    assert!(telemetry.paths.iter().all(|path| path.state.learned.is_some_and(|times| times.alone_ns > 0)));
    assert!(telemetry.to_string().contains("; the next in "), "{telemetry}");
    let explained: Vec<String> = context.explain(3).map(|line| line.to_string()).collect();
    assert!(explained.iter().all(|line| line.contains(" (alone ")), "{explained:?}");
}
