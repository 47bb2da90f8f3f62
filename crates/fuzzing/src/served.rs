//! Hostile frames at a server of a function, with its handler in C behind: no panic, an answer of the same length, and
//! a handler that goes on. Where no handler can be built (no C compiler), it says so and does nothing.

use std::cell::RefCell;

use pathcall_function::handler::{Config, Handler, cache_dir};
use pathcall_function::place::ServerId;
use pathcall_function::serve::{Answer, Server};
use pathcall_function::source::Sources;
use pathcall_function::split::{Target, split};

const SNAT: &str = include_str!("../../../functions/snat.p4c");
/// Ethernet header and the fixed part of the function's.
const FRONT: usize = 22;

struct Served {
    server: Server<Handler>,
    now_us: u64,
}

fn served() -> Option<Served> {
    let mut sources = Sources::new(Vec::new());
    let program = pathcall_function::compile(&mut sources, ("snat.p4c", SNAT)).expect("it compiles");
    let split = split(&program, &Target::default()).expect("it can be split");
    let handler = match Handler::start(&program, &|_| None, &Config::default(), &cache_dir(), 0) {
        Ok(handler) => handler,
        Err(error) => {
            eprintln!("served: {error}");
            return None;
        }
    };
    eprintln!("served: handler in {}", handler.kind());
    Some(Served { server: Server::new(ServerId::default(), &split, handler), now_us: 0 })
}

thread_local!(static SERVED: RefCell<Option<Served>> = RefCell::new(served()));

/// Takes one input.
pub fn run(data: &[u8]) {
    SERVED.with_borrow_mut(|served| {
        let Some(served) = served else { return };
        let Some((&first, rest)) = data.split_first() else { return };
        served.now_us += u64::from(first) << 12;
        let mut frame = rest.to_vec();
        if first & 1 == 0 && frame.len() >= FRONT {
            // What the front has to be, so that the rest is looked at.
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame[16..18].copy_from_slice(&[0, 0]);
            frame[20..22].copy_from_slice(&[0, 1]);
        }
        let before = frame.clone();
        match served.server.handle(served.now_us, &mut frame) {
            Answer::Send => {
                assert_eq!((frame.len(), &frame[12..14]), (before.len(), &[0x88, 0xb6][..]));
                assert_eq!((&frame[..6], &frame[6..12]), (&before[6..12], &before[..6]));
            }
            Answer::Refused(_) => assert_eq!(frame, before, "what is refused is left as it is"),
        }
        if first & 6 == 6 {
            served.server.expire(served.now_us);
        }
        while served.server.poll().is_some() {}
        assert_eq!(served.server.stats().trapped, 0, "the function's own handler takes whatever comes");
    });
}
