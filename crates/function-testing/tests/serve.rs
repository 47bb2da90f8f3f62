//! Tests of the server runtime of a handler.

use pathcall_function_testing::fixtures::{HandlerTables, count_function, count_handler};
use pathcall_netfn::place::{LeaseHolder, LeaseOutput};
use pathcall_netfn::serve::{FrameAnswer, HandlerServer};
use pathcall_p4::ir::{Match, TableEntry, TableId};
use pathcall_p4::split::layout::HeaderField;
use pathcall_p4::split::{SplitFunction, SplitTarget, split};

/// Size of the Ethernet header before the function's header.
const ETHERNET: usize = 14;

struct Served {
    split: SplitFunction,
    server: HandlerServer<HandlerTables>,
    /// Number of requests sent.
    number: u32,
}

fn served() -> Served {
    let program = count_function();
    let split = split(&program, &SplitTarget { function: 7, ..SplitTarget::default() }).expect("can be split");
    let server = HandlerServer::new(0, &split, count_handler(&program));
    Served { split, server, number: 0 }
}

impl Served {
    fn travelling(&self, name: &str) -> HeaderField {
        let found = self.split.layout.travelling.iter().find(|field| field.name == format!("pc.{name}"));
        found.cloned().expect("a header field")
    }

    /// Request of a flow with these header values.
    fn request(&mut self, flow: u128, travels: &[(&str, u128)]) -> Vec<u8> {
        self.number += 1;
        let layout = self.split.layout.clone();
        let mut frame = vec![0; ETHERNET + layout.length + 12];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[16..18].copy_from_slice(&layout.function.to_be_bytes());
        frame[21] = pathcall_wire::function::VERSION;
        let header = &mut frame[ETHERNET..];
        layout.request[0].write(header, flow);
        layout.request[1].write(header, self.number.into());
        self.travelling("number").write(header, self.number.into());
        for (name, value) in travels {
            self.travelling(name).write(header, *value);
        }
        frame
    }

    /// Processes a request; returns the sequence number of the packet before, the entry and its turn.
    fn work(&mut self, flow: u128, travels: &[(&str, u128)]) -> (u128, u128, u128) {
        let mut frame = self.request(flow, travels);
        assert_eq!(self.server.handle(0, &mut frame), FrameAnswer::Send);
        let header = &frame[ETHERNET..];
        let read = ["entry", "turn"].map(|name| self.travelling(name).read(header));
        (self.split.layout.response[0].read(header), read[0], read[1])
    }

    fn keys(flow: u128) -> Vec<Match> {
        vec![Match { value: flow, prefix_bits: 32 }]
    }
}

const FLOWS: TableId = TableId(0);

#[test]
fn repeated_request_is_processed_once() {
    let mut served = served();
    let mut frame = served.request(9, &[]);
    let repeat = frame.clone();
    assert_eq!(served.server.handle(0, &mut frame), FrameAnswer::Send);
    let mut again = repeat.clone();
    assert!(matches!(served.server.handle(0, &mut again), FrameAnswer::Refused(_)));
    assert_eq!(again, repeat, "the repeat is not changed");
    assert_eq!((served.server.stats().requests, served.server.stats().repeated), (1, 1));
    assert_eq!(served.work(9, &[]).0, 1, "the repeat did not count");
}

#[test]
fn last_packet_decides_group_of_flow() {
    let mut served = served();
    served.server.set_group(1, &[3, 4], None);
    served.work(8, &[("version", 1), ("bucket", 3)]);
    served.work(9, &[("version", 1), ("bucket", 4)]);
    assert_eq!(served.server.flows(), (2, 0, 1));
    // The bucket stays at this server, but the element assigns the flow by the previous group.
    served.server.set_group(2, &[3, 4], Some((1, &[3, 4])));
    assert_eq!(served.server.flows(), (2, 2, 2));
    served.work(8, &[("version", 2), ("bucket", 3)]);
    assert_eq!(served.server.flows(), (2, 1, 2));
}

#[test]
fn leftover_entry_of_earlier_server_is_foreign() {
    let mut served = served();
    served.work(9, &[]);
    let foreign = served.work(9, &[("entry", 6)]);
    assert_eq!(foreign, (1, 6, LeaseHolder::FOREIGN_ENTRY.into()), "entry of another server for a flow of this one");
    served.server.lease(0, FLOWS, &[9], 8);
    let (_, entry, turn) = served.work(9, &[("entry", 6)]);
    assert_eq!((entry, turn & 3), (9, 1), "the server's own entry takes precedence");
    // An operator's entry is the same at all servers, so it is not foreign.
    let keys = Served::keys(20);
    served.server.add(FLOWS, TableEntry { keys, action: pathcall_p4::ir::ActionId(0), args: vec![77] });
    while served.server.poll().is_some() {}
    assert_eq!(served.work(20, &[("entry", 6)]), (0, 0, 0));
}

#[test]
fn drain_recalls_old_flows_that_stay() {
    let mut served = served();
    served.server.set_group(1, &[3, 4], None);
    for (flow, bucket) in [(8, 3), (9, 4)] {
        served.work(flow, &[("version", 1), ("bucket", bucket)]);
        served.server.lease(0, FLOWS, &[flow], flow as u32);
        assert!(matches!(served.server.poll(), Some(LeaseOutput::Leased { .. })));
    }
    served.server.drain(0, None);
    assert_eq!(served.server.poll(), None, "no old flows");
    served.server.set_group(2, &[4], Some((1, &[3, 4])));
    served.server.drain(0, None);
    assert_eq!(
        served.server.poll(),
        Some(LeaseOutput::Recall { number: 9 }),
        "recalled, so that its next packet joins the new group"
    );
    assert_eq!(served.server.poll(), None, "the other flow does not stay here");
    served.server.drain(0, None);
    assert_eq!(served.server.poll(), None, "recalled only once");
}

/// A restarted element has no flows in its filters, so flows go to the servers of their buckets.
#[test]
fn entry_of_diverted_flow_is_not_leased() {
    let mut served = served();
    served.server.set_group(2, &[3], Some((1, &[3, 4])));
    for (flow, version, bucket) in [(8, 2, 3), (9, 1, 4)] {
        served.work(flow, &[("version", version), ("bucket", bucket)]);
    }
    let lease = |served: &mut Served, flow: u32| {
        served.server.lease(0, FLOWS, &[flow.into()], flow);
        let leased = served.server.poll();
        served.server.release(0, flow);
        matches!(leased, Some(LeaseOutput::Leased { entry: Some(_), .. }))
    };
    assert!(lease(&mut served, 8) && lease(&mut served, 9));
    served.server.set_group(3, &[3], Some((2, &[3])));
    assert!(lease(&mut served, 8) && !lease(&mut served, 9));
    assert_eq!(served.server.flows(), (2, 1, 3), "the diverted flow does not count as old");
    served.work(9, &[("version", 3), ("bucket", 3)]);
    assert!(lease(&mut served, 9), "a new packet ends the diversion");
}
