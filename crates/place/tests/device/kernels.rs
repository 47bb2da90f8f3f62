//! Kernels on the accelerators of this machine.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::unbounded;
use pathcall_place::device::pool::{CpuPool, PoolConfig};
use pathcall_place::device::{AnswerLength, Completion, ComputeDevice, Job, JobRefusal, WorkItemCount};

use super::{LIMIT, add_seven, collect, expected, inputs, run};
use crate::accelerators::{accelerators, code, kernel};

pub(super) const ADD_SEVEN: &str = "kernel void add_seven(global const uchar *input, uint input_bytes, global uchar *output, \
     uint output_bytes_max) {\n\
     uint i = get_global_id(0);\n\
     if (i < input_bytes && i < output_bytes_max) output[i] = input[i] + 7;\n}";

#[test]
fn kernel_answer_equals_host_answer() {
    for device in accelerators() {
        let function = device
            .load("add", &code(kernel(ADD_SEVEN, "add_seven", AnswerLength::AsInput), &*device))
            .expect("program compiles");
        assert_eq!(run(&*device, function, &inputs(), 100_000), expected(&inputs()));
        // Registered memory is reused, with many jobs in flight.
        let (done, completions) = unbounded();
        let mut regions: Vec<_> = (0..8).map(|_| device.register(64, 64).expect("memory")).collect();
        let mut sent = 0_u64;
        for round in 0..50 {
            for region in regions.drain(..) {
                let input = Bytes::from(vec![round; 32 + usize::from(round) % 33]);
                device.submit(Job { tag: sent, function, input, region, done: done.clone() }).expect("room");
                sent += 1;
            }
            for _ in 0..8 {
                let Completion { region, result, .. } = completions.recv_timeout(LIMIT).expect("in time");
                let (region, bytes) = (region.expect("memory"), result.expect("an answer"));
                assert_eq!(region.output(bytes), vec![round + 7; 32 + usize::from(round) % 33]);
                regions.push(region);
            }
        }
    }
}

#[test]
fn kernel_build_error_has_position() {
    for device in accelerators() {
        let load = |source, entry| {
            device
                .load("f", &code(kernel(source, entry, AnswerLength::Any), &*device))
                .expect_err("expected a rejection")
                .to_string()
        };
        let message = load("kernel void f(global uchar *x) {\n  x[0] = missing;\n}", "f");
        assert!(
            // The position of OpenCL's compiler, or of CUDA's.
            message.contains("kernel `f` does not compile")
                && message.contains("missing")
                && (message.contains(":2:") || message.contains("(2)")),
            "{message}"
        );
        let message = load(ADD_SEVEN, "sub_seven");
        assert!(message.contains("sub_seven") && message.contains("the text has no kernel of this name"), "{message}");
        let message = load("kernel void f(global uchar *x) { }", "f\0g");
        assert!(message.contains("zero byte"), "{message}");
        assert!(device.load("f", &add_seven()).is_err());
    }
}

#[test]
fn kernel_reports_answer_length_and_uses_tables() {
    for device in accelerators() {
        // One work item repeats each byte; the table has the number of repetitions.
        let source = "kernel void repeat(global const uchar *input, uint input_bytes, global uchar *output, \
                  uint output_bytes_max, global uint *output_bytes, global uchar *times) {\n\
                  if (get_global_id(0) != 0) return;\n\
                  uint at = 0;\n\
                  for (uint i = 0; i < input_bytes; i++)\n\
                    for (uint n = 0; n < times[input[i]]; n++, at++)\n\
                      if (at < output_bytes_max) output[at] = input[i];\n\
                  if (input_bytes != 9) *output_bytes = at;\n}";
        let mut kernel = kernel(source, "repeat", AnswerLength::Any);
        kernel.items = WorkItemCount::Exactly(1);
        kernel.group = 1;
        kernel.tables = vec![Bytes::from((0..=255_u8).map(|byte| byte % 3).collect::<Vec<_>>()).into()];
        let function = device.load("repeat", &code(kernel, &*device)).expect("program compiles");
        let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3, 4]), Bytes::from(vec![2; 20])], 30);
        assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 4])));
        let too_long = answers[1].clone().expect_err("no room").to_string();
        assert_eq!(too_long, "answer of 40 bytes, expected at most 30");
        device.update(function, 0, 3, &[3]).expect("a table");
        let answers = run(&*device, function, &[Bytes::from_static(&[1, 2, 3]), Bytes::from(vec![0; 9])], 30);
        assert_eq!(answers[0], Ok(Bytes::from_static(&[1, 2, 2, 3, 3, 3])));
        assert!(answers[1].clone().expect_err("no length").to_string().contains("did not say"));
        assert!(device.update(function, 1, 0, &[0]).is_err() && device.update(function, 0, 255, &[0, 0]).is_err());
    }
}

#[test]
fn job_is_accepted_during_table_change() {
    for device in accelerators() {
        let source = "kernel void turn(global const uchar *input, uint input_bytes, global uchar *output, uint max, \
                  global uchar *table) {\n\
                  uint turned = table[0], turns = input[0] * 4000000u;\n\
                  for (uint i = 0; i < turns; i++) turned = turned * 1664525u + 1013904223u;\n\
                  output[0] = table[0];\n\
                  output[1] = turned;\n}";
        let mut kernel = kernel(source, "turn", AnswerLength::Exactly(2));
        (kernel.items, kernel.group, kernel.tables) =
            (WorkItemCount::Exactly(1), 1, vec![Bytes::from_static(&[1]).into()]);
        let function = device.load("turn", &code(kernel, &*device)).expect("program compiles");
        // Compile first.
        run(&*device, function, &[Bytes::from_static(&[0])], 2);
        // On a paused machine a short job may end too early; the next job is longer.
        let shown = [8, 32, 128, 255].into_iter().any(|turns| {
            device.update(function, 0, 0, &[1]).expect("a table");
            let (done, completions) = unbounded();
            // A library may wait for running kernels when it allocates memory.
            let regions = Mutex::new((0..3).map(|_| device.register(2, 2).expect("memory")).collect::<Vec<_>>());
            let submit = |tag, turns| {
                let region = regions.lock().expect("no panic").pop().expect("memory");
                let job = Job { tag, function, input: Bytes::from(vec![turns]), region, done: done.clone() };
                device.submit(job).expect("room");
            };
            submit(0, turns);
            let shown = std::thread::scope(|scope| {
                let changes = scope.spawn(|| device.update(function, 0, 0, &[2]));
                // No event reports that the thread waits for the device; if it does not wait yet, the test shows less.
                std::thread::sleep(Duration::from_millis(100));
                submit(1, 0);
                let is_changed = changes.is_finished();
                let runs = completions.is_empty();
                assert!(!(runs && is_changed), "table changed during a job");
                changes.join().expect("no panic").expect("a table");
                runs
            });
            submit(2, 0);
            let tables = collect(&completions, 3).into_iter().map(|answer| answer.expect("an answer")[0]);
            assert_eq!(tables.step_by(2).collect::<Vec<_>>(), [1, 2]);
            shown
        });
        assert!(shown, "each change waited for the job before it");
    }
}

#[test]
fn memory_of_other_device_is_refused_and_returned() {
    for device in accelerators() {
        let pool = CpuPool::start(&PoolConfig::new(1)).expect("threads");
        let function = device
            .load("add", &code(kernel(ADD_SEVEN, "add_seven", AnswerLength::AsInput), &*device))
            .expect("program compiles");
        let (done, completions) = unbounded();
        let input = Bytes::from_static(b"four");
        let region = pool.register(4, 4).expect("memory");
        let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
        let refused = device.submit(job).expect_err("region of another device");
        assert!(refused.reason == JobRefusal::Memory && refused.job.is_some(), "{refused:?}");
        let region = device.register(3, 4).expect("memory");
        let job = Job { tag: 0, function, input: input.clone(), region, done: done.clone() };
        assert_eq!(device.submit(job).expect_err("too long").reason, JobRefusal::TooLong { max: 3, got: 4 });
        let added = pool.load("add", &add_seven()).expect("loaded");
        let region = device.register(4, 4).expect("memory");
        pool.submit(Job { tag: 1, function: added, input, region, done }).expect("read later");
        assert!(completions.recv_timeout(LIMIT).expect("in time").result.is_err());
    }
}
