//! Fuzz target of a function's server with its C handler. Checks: no panic, an answer has the length of its frame, the
//! handler continues after every frame. Without a C compiler, the target prints the error and does nothing.

use std::cell::RefCell;

use pathcall_netfn::handler::{CHandler, Config, cache_dir};
use pathcall_netfn::place::ServerId;
use pathcall_netfn::serve::{FrameAnswer, HandlerServer};
use pathcall_p4::source::Sources;
use pathcall_p4::split::{SplitTarget, split};

const SNAT: &str = include_str!("../../../functions/snat.p4c");
/// Length of the Ethernet header and the fixed part of the function's header.
const HEADER_LEN: usize = 22;

struct ServedHandler {
    server: HandlerServer<CHandler>,
    now_us: u64,
}

fn start_handler() -> Option<ServedHandler> {
    let mut sources = Sources::new(Vec::new());
    let program = pathcall_p4::compile(&mut sources, ("snat.p4c", SNAT)).expect("program compiles");
    let split = split(&program, &SplitTarget::default()).expect("function can be split");
    let handler = match CHandler::start(&program, &|_| None, &Config::default(), &cache_dir(), 0) {
        Ok(handler) => handler,
        Err(error) => {
            eprintln!("served: {error}");
            return None;
        }
    };
    eprintln!("served: handler in {}", handler.kind());
    Some(ServedHandler { server: HandlerServer::new(ServerId::default(), &split, handler), now_us: 0 })
}

thread_local!(static SERVED: RefCell<Option<ServedHandler>> = RefCell::new(start_handler()));

/// Tests one input.
pub fn run(data: &[u8]) {
    SERVED.with_borrow_mut(|served| {
        let Some(served) = served else { return };
        let Some((&first, rest)) = data.split_first() else { return };
        served.now_us += u64::from(first) << 12;
        let mut frame = rest.to_vec();
        if first & 1 == 0 && frame.len() >= HEADER_LEN {
            // Valid fixed fields, so that the server reads the rest.
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame[16..18].copy_from_slice(&[0, 0]);
            frame[20..22].copy_from_slice(&[0, 1]);
        }
        let before = frame.clone();
        match served.server.handle(served.now_us, &mut frame) {
            FrameAnswer::Send => {
                assert_eq!((frame.len(), &frame[12..14]), (before.len(), &[0x88, 0xb6][..]));
                assert_eq!((&frame[..6], &frame[6..12]), (&before[6..12], &before[..6]));
            }
            FrameAnswer::Refused(_) => assert_eq!(frame, before, "rejected frame is unchanged"),
        }
        if first & 6 == 6 {
            served.server.expire(served.now_us);
        }
        while served.server.poll().is_some() {}
        assert_eq!(served.server.stats().trapped, 0, "the handler accepts every frame");
    });
}
