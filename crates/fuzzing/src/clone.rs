//! Frames to the hosts' ends of cloned calls: a caller, a server's queue. The input is a sequence of
//! frames, each after what is to be done with it and its length, and time passes between them. Identity fields are
//! made right, so that the fuzzer gets past the doors. No panic; each call ends once; what is kept and what is sent is
//! bounded by what was asked.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::clone::{
    Ask, Balance, Blame, Budget, Caller, CallerConfig, Event, Hedge, Options, Pool, To, Worker, WorkerConfig,
};
use pathcall_wire::base::{MAGIC, VERSION};
use pathcall_wire::clone::{CloneFrame, MAX_PARTS, PART};
use pathcall_wire::{Base, BaseRepr, CloneHeader, Flags, Instant, MAX_FRAME};

const GAID: u32 = 7;
const CALLER: u32 = 1;
const SERVER: u32 = 10;
const INCARNATION: u32 = 5;
/// Bounds of the queues.
const QUEUE_MAX: usize = 20;
const MEMORY_MAX: usize = 6 * PART;
/// Frames that may be sent at once: whole requests and answers, several of them.
const SENT_MAX: usize = 20 * MAX_PARTS;

/// Who gets a frame.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Caller,
    Server,
}

/// Takes one input.
pub fn run(data: &[u8]) {
    let (mut caller, mut worker) = parties();
    let (mut open, mut now, mut rest) = (HashSet::new(), Instant(0), data);
    for nth in 0..8 {
        let hedge = (nth % 3 == 0).then_some(Hedge { delay: Duration::from_millis(nth as u64), max_attempts: 3 });
        let balance = [Balance::Random, Balance::Shortest, Balance::RoundRobin][nth % 3];
        let options = Options {
            clone: nth % 4 < 2,
            twice: nth == 2,
            steered: nth == 4,
            balance,
            cancel: nth % 2 == 0,
            purse: nth as u8 % 3,
            hedge,
            ..Options::default()
        };
        let request = Bytes::from(vec![nth as u8; nth * 700]);
        open.insert(caller.ask(now, Ask { request, options }).expect("room"));
    }
    while let Some(([op, len], after)) = rest.split_first_chunk() {
        let (bytes, after) = after.split_at(after.len().min((*len).into()));
        (rest, now) = (after, now + Duration::from_millis(u64::from(op >> 5) * 3));
        let mut frame = bytes.to_vec();
        let at = [At::Caller, At::Server][usize::from(op & 1)];
        name_rightly(&mut frame, at, op & 4 != 0);
        match at {
            At::Caller => caller.receive(now, &frame),
            At::Server => worker.receive(now, &frame),
        }
        match op >> 3 & 3 {
            1 => caller.pool(now, pool(u32::from(*len))),
            2 | 3 => work(now, &mut worker, *len),
            _ => worker.moved(u16::from(*len) % 4),
        }
        caller.poll(now);
        worker.poll(now);
        let sent = drain(|out| caller.transmit(now, out)) + drain(|out| worker.transmit(now, out));
        assert!(sent <= SENT_MAX, "{sent} frames at once");
        while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.event() {
            assert!(open.remove(&call), "{call:?} has ended before");
        }
        assert!(worker.waiting() <= QUEUE_MAX && worker.busy() <= 2 && worker.memory() <= MEMORY_MAX);
    }
    caller.poll(now + Duration::from_secs(60));
    while let Some(Event::Answered(call, _) | Event::Failed(call, _)) = caller.event() {
        assert!(open.remove(&call), "{call:?} has ended before");
    }
    assert!(open.is_empty() && caller.is_empty(), "{open:?} have no end");
}

fn pool(servers: u32) -> Pool {
    Pool { gaid: GAID, version: 1 + servers, servers: (SERVER..=SERVER + servers % 4).collect() }
}

fn parties() -> (Caller, Worker) {
    let budgets = vec![Budget::default(), Budget { share: 0.1, burst: 2.0, per_second: 1.0 }];
    let caller = CallerConfig { last_call: 0, budgets, ..CallerConfig::new(CALLER, INCARNATION, pool(3), 1) };
    let worker = WorkerConfig {
        queue_max: QUEUE_MAX,
        partial_max: 3,
        memory_max: MEMORY_MAX,
        remembered: 8,
        ..WorkerConfig::new(GAID, SERVER, INCARNATION, 0, 2)
    };
    (Caller::new(Instant(0), caller), Worker::new(worker))
}

/// Makes identity fields and lengths right; `whole` parts are as long as those before the last are.
fn name_rightly(frame: &mut Vec<u8>, at: At, whole: bool) {
    const HEAD: usize = Base::LEN + CloneHeader::LEN;
    if whole && frame.len() >= HEAD {
        frame.resize(HEAD + PART, 3);
    }
    let Ok(length) = u16::try_from(frame.len()) else { return };
    let Some(head) = frame.first_chunk_mut::<HEAD>() else { return };
    let byte = |at: usize| u32::from(head[at]);
    let flags = u16::from_be_bytes([head[4], head[5]]) & !Flags::TOKEN;
    let answers = at == At::Caller;
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
            At::Caller => CALLER,
            At::Server => SERVER,
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

/// What a server's workers do.
fn work(now: Instant, worker: &mut Worker, how: u8) {
    let reply = |len: usize| Bytes::from(vec![9; len]);
    while let Some(work) = worker.begin(now) {
        // Too long replies are errors; what was dropped or is done is.
        let _ = match how % 4 {
            0 => worker.finish(work.id, reply(usize::from(how) * 200)),
            1 => worker.fail(work.id, reply(usize::from(how)), if how > 99 { Blame::Server } else { Blame::Request }),
            2 => worker.finish(work.id, reply(MAX_PARTS * PART + 1)),
            _ => {
                worker.drop_work(work.id);
                Ok(())
            }
        };
        assert!(worker.finish(work.id, Bytes::new()).is_err(), "it is done with");
    }
    while worker.unwanted().is_some() || worker.given_up().is_some() {}
}

/// Takes what is to be sent; how many frames.
fn drain(mut transmit: impl FnMut(&mut [u8]) -> Option<(To, usize)>) -> usize {
    let mut out = [0; MAX_FRAME];
    let next = || {
        let (_, len) = transmit(&mut out)?;
        CloneFrame::new_checked(&out[..len]).map(drop).expect("what is sent is a frame");
        Some(())
    };
    std::iter::from_fn(next).count()
}
