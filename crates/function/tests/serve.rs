//! Tests of what is around a handler.

use pathcall_function::ir::{Entry, Match, TableId};
use pathcall_function::place::{Holder, HolderOutput};
use pathcall_function::serve::{Answer, Server};
use pathcall_function::split::layout::Field;
use pathcall_function::split::{Split, Target, split};
use pathcall_function_testing::fixtures::{Tables, count, counted};

/// In front of the function's own header.
const ETHERNET: usize = 14;

struct Served {
    split: Split,
    server: Server<Tables>,
    /// Requests so far.
    number: u32,
}

fn served() -> Served {
    let program = count();
    let split = split(&program, &Target { function: 7, ..Target::default() }).expect("can be split");
    let server = Server::new(0, &split, counted(&program));
    Served { split, server, number: 0 }
}

impl Served {
    fn travelling(&self, name: &str) -> Field {
        let found = self.split.layout.travelling.iter().find(|field| field.name == format!("pc.{name}"));
        found.cloned().expect("it travels")
    }

    /// A request of this flow, with what travels.
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

    /// What the response says: of the packet before, and of the entry with its turn.
    fn work(&mut self, flow: u128, travels: &[(&str, u128)]) -> (u128, u128, u128) {
        let mut frame = self.request(flow, travels);
        assert_eq!(self.server.handle(0, &mut frame), Answer::Send);
        let header = &frame[ETHERNET..];
        let said = ["entry", "turn"].map(|name| self.travelling(name).read(header));
        (self.split.layout.response[0].read(header), said[0], said[1])
    }

    fn keys(flow: u128) -> Vec<Match> {
        vec![Match { value: flow, prefix_bits: 32 }]
    }
}

const FLOWS: TableId = TableId(0);

#[test]
fn what_a_link_repeats_is_worked_on_once() {
    let mut served = served();
    let mut frame = served.request(9, &[]);
    let repeat = frame.clone();
    assert_eq!(served.server.handle(0, &mut frame), Answer::Send);
    let mut again = repeat.clone();
    assert!(matches!(served.server.handle(0, &mut again), Answer::Refused(_)));
    assert_eq!(again, repeat, "it is left as it is");
    assert_eq!((served.server.stats().requests, served.server.stats().repeated), (1, 1));
    assert_eq!(served.work(9, &[]).0, 1, "the packet before was the first, not its repeat");
}

#[test]
fn a_flow_is_as_old_as_its_last_packet() {
    let mut served = served();
    served.server.set_group(1, &[3, 4], None);
    served.work(8, &[("version", 1), ("bucket", 3)]);
    served.work(9, &[("version", 1), ("bucket", 4)]);
    assert_eq!(served.server.flows(), (2, 0, 1));
    // Its bucket is here in the next group, too; but the element remembers it by the one before.
    served.server.set_group(2, &[3, 4], Some((1, &[3, 4])));
    assert_eq!(served.server.flows(), (2, 2, 2));
    served.work(8, &[("version", 2), ("bucket", 3)]);
    assert_eq!(served.server.flows(), (2, 1, 2));
}

#[test]
fn what_is_left_over_in_the_element_is_a_stranger() {
    let mut served = served();
    served.work(9, &[]);
    let stranger = served.work(9, &[("entry", 6)]);
    assert_eq!(stranger, (1, 6, Holder::STRANGER.into()), "another server's entry of a flow that is here");
    served.server.lease(0, FLOWS, &[9], 8);
    let (_, entry, turn) = served.work(9, &[("entry", 6)]);
    assert_eq!((entry, turn & 3), (9, 1), "the server's own goes before it");
    // What an operator put in is the same at all servers, whoever it was leased from.
    let keys = Served::keys(20);
    served.server.add(FLOWS, Entry { keys, action: pathcall_function::ir::ActionId(0), args: vec![77] });
    while served.server.poll().is_some() {}
    assert_eq!(served.work(20, &[("entry", 6)]), (0, 0, 0));
}

#[test]
fn old_flows_that_stay_leave_the_element_when_somebody_waits() {
    let mut served = served();
    served.server.set_group(1, &[3, 4], None);
    for (flow, bucket) in [(8, 3), (9, 4)] {
        served.work(flow, &[("version", 1), ("bucket", bucket)]);
        served.server.lease(0, FLOWS, &[flow], flow as u32);
        assert!(matches!(served.server.poll(), Some(HolderOutput::Leased { .. })));
    }
    served.server.drain(0, None);
    assert_eq!(served.server.poll(), None, "no flow is old");
    served.server.set_group(2, &[4], Some((1, &[3, 4])));
    served.server.drain(0, None);
    assert_eq!(served.server.poll(), Some(HolderOutput::Recall { number: 9 }), "its next packet makes it new");
    assert_eq!(served.server.poll(), None, "the other one's can't");
    served.server.drain(0, None);
    assert_eq!(served.server.poll(), None, "it is recalled once");
}

/// An element that began anew knows no flow: those go where their buckets are.
#[test]
fn what_is_left_of_a_flow_that_went_elsewhere_does_not_go_into_the_element() {
    let mut served = served();
    served.server.set_group(2, &[3], Some((1, &[3, 4])));
    for (flow, version, bucket) in [(8, 2, 3), (9, 1, 4)] {
        served.work(flow, &[("version", version), ("bucket", bucket)]);
    }
    let lease = |served: &mut Served, flow: u32| {
        served.server.lease(0, FLOWS, &[flow.into()], flow);
        let leased = served.server.poll();
        served.server.release(0, flow);
        matches!(leased, Some(HolderOutput::Leased { entry: Some(_), .. }))
    };
    assert!(lease(&mut served, 8) && lease(&mut served, 9));
    served.server.set_group(3, &[3], Some((2, &[3])));
    assert!(lease(&mut served, 8) && !lease(&mut served, 9));
    assert_eq!(served.server.flows(), (2, 1, 3), "and nobody waits for it");
    served.work(9, &[("version", 3), ("bucket", 3)]);
    assert!(lease(&mut served, 9), "unless it comes again");
}
