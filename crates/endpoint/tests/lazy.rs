//! Clear policy *lazy* at a worker and at the owner, and epochs with other numbers of rows.

use pathcall_endpoint::map::client::{CallId, ClientConfig, MapClient};
use pathcall_endpoint::map::lease::Era;
use pathcall_endpoint::map::server::{ElementTerms, MapServer, ServerConfig};
use pathcall_endpoint::map::{ClearPolicy, Dest, EpochChange, Output, RegisterGrant};
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{BaseRepr, Flags, FrameKind, MapFlags, MapFrame, MapRepr};

use crate::config::{client_config, server_config};
use crate::shadow::{NOW, ROWS, Sent, WIDTH, call, handle_frame, member, past_the_element, to_worker};

fn worker(clear: ClearPolicy) -> MapClient {
    MapClient::new(ClientConfig { element: true, rows: ROWS, width: WIDTH, clear, ..client_config() })
}

/// Server with two workers.
fn server(clear: ClearPolicy) -> MapServer {
    let grant = Some(RegisterGrant { rows: ROWS, width: WIDTH });
    let mut server = MapServer::new(ServerConfig { grant, threshold: 2, clear, width: WIDTH, ..server_config() });
    for endpoint in [10, 11] {
        server.join(NOW, member(endpoint, 0)).expect("join succeeds");
    }
    server
}

/// Frame of worker 0 or 1 to the server: the flags of its base and of its map header, its epoch, row and round.
fn send(server: &mut MapServer, worker: u16, (flags, map_flags): (u16, u16), epoch: u32, row: u32, round: u32) -> Sent {
    let base = past_the_element(10 + u32::from(worker), FrameKind::MapData);
    let base = BaseRepr { flags, epoch, round, ..base };
    let flags = MapFlags::LINEAR | MapFlags::ROUND | map_flags;
    let map = MapRepr { flags, lanes: WIDTH, index: row, worker, ..MapRepr::default() };
    let mut bytes = vec![0; frame_len(map.flags, usize::from(WIDTH), 0)];
    let mut frame = emit(&base, &map, &mut bytes);
    if flags & MapFlags::BARE == 0 {
        frame.bitmap_and_lanes_mut().1.fill(worker as u8 + 1);
    }
    let mut sent = Sent::default();
    server.handle(NOW, &bytes, &mut sent);
    sent
}

const PART: u16 = MapFlags::COUNT | MapFlags::ADD;
const SUMS: u16 = MapFlags::GET;
/// Part that the element found to be of an earlier round than its row.
const OLD: (u16, u16) = (0, PART | MapFlags::OLD | MapFlags::BARE);

/// Kind, row and round of each frame.
fn heads(sent: &Sent) -> Vec<(FrameKind, u32, u32)> {
    sent.heads().into_iter().map(|(_, kind, row, round, _)| (kind, row, round)).collect()
}

#[test]
fn lazy_window_is_all_rows() {
    let mut worker = worker(ClearPolicy::Lazy);
    let heads = call(&mut worker, 6).heads();
    assert_eq!(heads.iter().map(|head| head.2).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(heads.iter().all(|head| head.0 == Dest::Element && head.4 & MapFlags::CLEAR != 0), "{heads:?}");
    let next = handle_frame(&mut worker, &to_worker(FrameKind::MapResult, 0, 0, 1, &[2; 4]));
    assert_eq!(next.heads().iter().map(|head| (head.2, head.3)).collect::<Vec<_>>(), [(0, 2)], "the row is used again");
}

#[test]
fn sums_that_the_element_has_cleared_are_requested_from_workers() {
    let mut server = server(ClearPolicy::Lazy);
    let asked = send(&mut server, 1, OLD, 1, 0, 1);
    assert_eq!(heads(&asked), [(FrameKind::MapSoft, 0, 1)]);
    assert_eq!(asked.0[0].0, Dest::Element, "all workers are asked");
    let given = send(&mut server, 0, (Flags::CROSS, SUMS), 1, 0, 1);
    assert_eq!(heads(&given), [(FrameKind::MapResult, 0, 1)]);
    // From now on, the server has them.
    let again = send(&mut server, 1, OLD, 1, 0, 1);
    assert_eq!(heads(&again), [(FrameKind::MapResult, 0, 1)]);
    // Not with *shadow*: the element clears no sums that a worker misses.
    let mut shadow = self::server(ClearPolicy::Shadow);
    assert_eq!(heads(&send(&mut shadow, 1, OLD, 1, 0, 1)), []);
}

#[test]
fn server_has_sums_of_two_rounds_of_a_row() {
    let mut server = server(ClearPolicy::Lazy);
    // Worker 0 has the sums of round 1, and has begun round 2, when the epoch ends.
    let grant = Some(RegisterGrant { rows: ROWS, width: WIDTH });
    server.renew(NOW, ElementTerms { number: 1, epoch: 2, grant, reason: "a test" });
    assert!(heads(&send(&mut server, 0, (Flags::CROSS, PART), 2, 0, 2)).contains(&(FrameKind::MapHeld, 0, 2)));
    assert!(heads(&send(&mut server, 1, (Flags::CROSS, PART), 2, 0, 1)).contains(&(FrameKind::MapHeld, 0, 1)));
    let given = heads(&send(&mut server, 0, (Flags::CROSS, SUMS), 2, 0, 1));
    assert!(given.contains(&(FrameKind::MapResult, 0, 1)), "{given:?}");
    let done = heads(&send(&mut server, 1, (Flags::CROSS, PART), 2, 0, 2));
    assert!(done.contains(&(FrameKind::MapResult, 0, 2)), "{done:?}");
}

#[test]
fn chunk_keeps_its_number_when_rows_change() {
    for clear in [ClearPolicy::Copy, ClearPolicy::Shadow, ClearPolicy::Lazy] {
        let mut worker = worker(clear);
        call(&mut worker, 4);
        // Chunk 1 of 2 rows instead of 4 is in the same place, chunk 2 in another one.
        let era = Era::of_epoch(2);
        let renewal =
            EpochChange { epoch: 2, element: true, slot_base: 0, rows: 2, era, committed: 0, applied: Vec::new() };
        worker.renew(NOW, &renewal);
        let mut sent = Sent::default();
        worker.poll(NOW, &mut sent);
        let parts: Vec<_> = sent.heads().into_iter().filter(|head| head.1 == FrameKind::MapData).collect();
        let places: Vec<_> = parts.iter().map(|head| (head.0, head.2, head.3)).collect();
        let to = Dest::Endpoint(1);
        let expected = [(to, 0, 1), (to, 1, 1), (to, 0, 2), (to, 1, 2)];
        let in_flight = if clear == ClearPolicy::Shadow { 2 } else { 4 };
        assert_eq!(places, expected[..in_flight], "{clear:?}");
        // A result of the server names the rows of its epoch.
        for (row, round, rows) in [(0, 1, 2), (1, 1, 4), (2, 1, 4), (1, 2, 2)].into_iter().take(in_flight) {
            let mut result = to_worker(FrameKind::MapResult, Flags::FROM_SERVER, row, round, &[3; 4]);
            let mut frame = MapFrame::new_checked(&mut result[..]).expect("valid frame");
            frame.map_mut().set_threshold(rows);
            worker.handle(NOW, &result);
        }
        let sums = Output::Sums(vec![3; 16].into());
        let done = (in_flight == 4).then_some((CallId(1), Ok(sums)));
        assert_eq!(worker.next_event(), done, "{clear:?}");
    }
}

#[test]
fn parts_of_epochs_with_different_rows_meet_in_one_sum() {
    for clear in [ClearPolicy::Copy, ClearPolicy::Shadow, ClearPolicy::Lazy] {
        let mut server = server(clear);
        let grant = Some(RegisterGrant { rows: 2, width: WIDTH });
        server.renew(NOW, ElementTerms { number: 1, epoch: 2, grant, reason: "a test" });
        // Chunk 3 is row 3 of 4, and row 1 of 2 in round 2. Worker 0 has not heard of the new epoch.
        send(&mut server, 0, (Flags::CROSS, PART), 1, 3, 1);
        let sent = send(&mut server, 1, (Flags::CROSS, PART), 2, 1, 2);
        let results = sent.0.iter().map(|(_, bytes)| MapFrame::new_checked(&bytes[..]).expect("valid frame"));
        let result = results.into_iter().find(|frame| frame.kind() == FrameKind::MapResult).expect("a result");
        assert_eq!((result.map().index(), result.base().round(), result.map().threshold()), (1, 2, 2), "{clear:?}");
        assert_eq!(result.linear(0), Some(0x0303_0303), "{clear:?}");
        // An epoch of which the server knows nothing.
        assert_eq!(heads(&send(&mut server, 0, (Flags::CROSS, PART), 9, 0, 3)), []);
    }
}

#[test]
fn rows_of_an_epoch_do_not_change() {
    let mut server = server(ClearPolicy::Copy);
    let rows = |server: &mut MapServer, number, epoch, rows: Option<u32>| {
        let grant = rows.map(|rows| RegisterGrant { rows, width: WIDTH });
        server.renew(NOW, ElementTerms { number, epoch, grant, reason: "a test" });
        let renewal = server.take_epoch_change(member(10, number)).expect("a member");
        (renewal.rows, renewal.element)
    };
    assert_eq!(rows(&mut server, 1, 2, Some(2)), (2, true));
    // The owner continues without its element; the epoch is the same.
    assert_eq!(rows(&mut server, 2, 2, None), (2, false));
    assert_eq!(rows(&mut server, 3, 2, Some(1)), (2, false), "too few rows");
    assert_eq!(rows(&mut server, 4, 3, Some(100)), (ROWS, true), "not more than the first");
    assert_eq!(rows(&mut server, 5, 4, None), (ROWS, false));
}
