//! Fuzz target of cloned calls: frames to a caller and to a server's queue. The input is a sequence of frames, each
//! after an operation byte and a length byte; time passes between frames. Identity fields are corrected, so that frames
//! pass admission. Checks: no panic, each call ends once, memory and sent frames are bounded.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::clone::{
    Balance, CloneCall, CloneCaller, CloneCallerConfig, CloneDestination, CloneOptions, CloneWorker, CloneWorkerConfig,
    Event, FailureCause, Hedge, HedgeAfter, HedgeBudgetConfig, Pool, Pushback,
};
use pathcall_wire::base::{MAGIC, VERSION};
use pathcall_wire::clone::{CloneFrame, MAX_PARTS, PART};
use pathcall_wire::{Base, BaseRepr, CloneHeader, Flags, Instant, MAX_FRAME};

const GAID: u32 = 7;
const CALLER: u32 = 1;
const SERVER: u32 = 10;
const INCARNATION: u32 = 5;
/// Bounds of the queue.
const QUEUE_MAX: usize = 20;
const MEMORY_MAX: usize = 6 * PART;
/// Limit of frames sent at once: several whole requests and answers.
const SENT_MAX: usize = 20 * MAX_PARTS;

/// Receiver of a frame.
#[derive(Clone, Copy, PartialEq)]
enum FrameReceiver {
    Caller,
    Server,
}

/// Tests one input.
pub fn run(data: &[u8]) {
    let (mut caller, mut worker) = caller_and_worker();
    let (mut open, mut now, mut rest) = (HashSet::new(), Instant(0), data);
    for nth in 0..8 {
        let hedge = (nth % 3 == 0)
            .then_some(Hedge { after: HedgeAfter::Delay(Duration::from_millis(nth as u64)), max_attempts: 3 });
        let balance = [Balance::Random, Balance::Shortest, Balance::RoundRobin][nth % 3];
        let options = CloneOptions {
            clone: nth % 4 < 2,
            send_to_two: nth == 2,
            automatic: nth == 5,
            through_element: nth == 4,
            balance,
            cancel: nth % 2 == 0,
            budget: nth as u8 % 3,
            hedge,
            ..CloneOptions::default()
        };
        let request = Bytes::from(vec![nth as u8; nth * 700]);
        open.insert(caller.start_call(now, CloneCall { request, options }).expect("room"));
    }
    while let Some(([op, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min((*len).into()));
        (rest, now) = (after, now + Duration::from_millis(u64::from(op >> 5) * 3));
        let mut frame = bytes.to_vec();
        let at = [FrameReceiver::Caller, FrameReceiver::Server][usize::from(op & 1)];
        fix_identity(&mut frame, at, op & 4 != 0);
        match at {
            FrameReceiver::Caller => caller.receive(now, &frame),
            FrameReceiver::Server => worker.receive(now, &frame),
        }
        match op >> 3 & 3 {
            1 => caller.set_pool(now, pool(u32::from(*len))),
            2 | 3 => execute_requests(now, &mut worker, *len),
            _ => worker.set_sid(u16::from(*len) % 4),
        }
        caller.poll(now);
        worker.poll(now);
        let sent = drain(|out| caller.transmit(now, out)) + drain(|out| worker.transmit(now, out));
        assert!(sent <= SENT_MAX, "{sent} frames at once");
        while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.next_event() {
            assert!(open.remove(&call), "{call:?} ended twice");
        }
        assert!(worker.waiting() <= QUEUE_MAX && worker.busy() <= 2 && worker.memory() <= MEMORY_MAX);
    }
    caller.poll(now + Duration::from_secs(60));
    while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.next_event() {
        assert!(open.remove(&call), "{call:?} ended twice");
    }
    assert!(open.is_empty() && caller.is_empty(), "{open:?} did not end");
}

fn pool(servers: u32) -> Pool {
    Pool { gaid: GAID, version: 1 + servers, servers: (SERVER..=SERVER + servers % 4).collect() }
}

fn caller_and_worker() -> (CloneCaller, CloneWorker) {
    let budgets = vec![HedgeBudgetConfig::default(), HedgeBudgetConfig { share: 0.1, burst: 2.0, per_second: 1.0 }];
    let caller = CloneCallerConfig { last_call: 0, budgets, ..CloneCallerConfig::new(CALLER, INCARNATION, pool(3), 1) };
    let worker = CloneWorkerConfig {
        queue_max: QUEUE_MAX,
        partial_max: 3,
        memory_max: MEMORY_MAX,
        remembered: 8,
        ..CloneWorkerConfig::new(GAID, SERVER, INCARNATION, 0, 2)
    };
    (CloneCaller::new(Instant(0), caller), CloneWorker::new(worker))
}

/// Corrects identity fields and lengths; with `whole`, extends the frame to a full part.
fn fix_identity(frame: &mut Vec<u8>, at: FrameReceiver, whole: bool) {
    const HEAD: usize = Base::LEN + CloneHeader::LEN;
    if whole && frame.len() >= HEAD {
        frame.resize(HEAD + PART, 3);
    }
    let Ok(length) = u16::try_from(frame.len()) else { return };
    let Some(head) = frame.first_chunk_mut::<HEAD>() else { return };
    let byte = |at: usize| u32::from(head[at]);
    let flags = u16::from_be_bytes([head[4], head[5]]) & !Flags::TOKEN;
    let answers = at == FrameReceiver::Caller;
    let (host, server) = (CALLER + byte(19) % 2, SERVER + byte(27) % 4);
    let repr = BaseRepr {
        magic: MAGIC,
        version: VERSION,
        kind: head[3],
        flags: if answers { flags | Flags::FROM_SERVER } else { flags & !Flags::FROM_SERVER },
        length,
        gaid: GAID,
        epoch: byte(15) % 5,
        src: if answers { server } else { host },
        src_incarnation: INCARNATION,
        dst: match at {
            FrameReceiver::Caller => CALLER,
            FrameReceiver::Server => SERVER,
        },
        dst_incarnation: INCARNATION,
        slot: 0,
        seq: byte(39) % 16,
        round: 0,
    };
    repr.emit(head);
    let head = &mut head[Base::LEN..];
    head[26..28].copy_from_slice(&(length - HEAD as u16).to_be_bytes());
    (head[16], head[21]) = (head[16] % 3, head[21] & pathcall_wire::CloneFlags::ALL);
    (head[22], head[24]) = (0, 0);
}

/// Executes the requests in a server's queue; `how` selects the outcome.
fn execute_requests(now: Instant, worker: &mut CloneWorker, how: u8) {
    let reply = |len: usize| Bytes::from(vec![9; len]);
    while let Some(work) = worker.begin_next(now) {
        // An error is expected for a reply that is too long, and for a request that was dropped or is done.
        let _ = match how % 4 {
            0 => worker.finish(work.id, reply(usize::from(how) * 200)),
            1 => worker.fail(
                work.id,
                reply(usize::from(how)),
                if how > 99 { FailureCause::Server } else { FailureCause::Request },
                [None, Some(Pushback::Never), Some(Pushback::After(Duration::from_millis(1)))][usize::from(how) % 3],
            ),
            2 => worker.finish(work.id, reply(MAX_PARTS * PART + 1)),
            _ => {
                worker.drop_request(work.id);
                Ok(())
            }
        };
        assert!(worker.finish(work.id, Bytes::new()).is_err(), "finished request is unknown");
    }
    while worker.next_unwanted().is_some() || worker.next_cancelled().is_some() {}
}

/// Takes all frames to be sent; returns their number.
fn drain(mut transmit: impl FnMut(&mut [u8]) -> Option<(CloneDestination, usize)>) -> usize {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (_, len) = transmit(&mut out)?;
        CloneFrame::new_checked(&out[..len]).map(drop).expect("sent frame is valid");
        Some(())
    };
    std::iter::from_fn(next).count()
}
