//! Scenes of ballots.

use pathcall_conformance::Step;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, entries};
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{BaseRepr, Flags, Kind, MapFlags, MapRepr, Target};

use super::scene::{Scene, caller, server};

fn about(row: u32, flags: u16, threshold: u32) -> MapRepr {
    MapRepr { flags: flags | MapFlags::BARE, to: Target::Server as u8, index: row, threshold, ..MapRepr::default() }
}

fn vote(from: u32, seq: u32, row: u32, key: &[u8]) -> Vec<u8> {
    entries(&caller(from, Kind::MapPairs, seq), &about(row, MapFlags::COUNT, 2), &[key])
}

fn clear(from: u32, seq: u32, row: u32, key: &[u8]) -> Vec<u8> {
    entries(&caller(from, Kind::MapPairs, seq), &about(row, MapFlags::CLEAR, 0), &[key])
}

/// The server's word that the ballot of a row is decided.
fn decided(row: u32, round: u32, mcast: bool) -> Vec<u8> {
    let base = server(Kind::MapPairsAck, 21);
    let flags = base.flags | if mcast { Flags::MCAST } else { 0 };
    bare(&BaseRepr { round, flags, ..base }, &about(row, MapFlags::COUNT, 0))
}

pub fn ballots() -> Case {
    let mut scene = Scene::new("ballots");
    scene.remark("the first vote goes no further, the second finds the threshold reached; repeats do the same");
    scene.send(vote(21, 1, 0, b"sred"));
    scene.send(vote(21, 1, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.remark("a word of another round decides nothing, and one of a row without a ballot neither");
    scene.send(decided(0, 1, false));
    scene.send(decided(1, 0, false));
    scene.send(vote(21, 2, 0, b"sred"));
    scene.remark("decided: from now on votes are answered, and told; who went to the server asks there");
    scene.send(decided(0, 0, true));
    scene.send(vote(21, 3, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.remark("another key in the row is the server's to count, whatever its first bytes");
    scene.send(vote(21, 4, 0, b"sre"));
    scene.send(vote(21, 4, 0, b"sre"));
    scene.send(vote(22, 2, 0, b"sred\0"));
    scene.send(clear(22, 3, 0, b"sblue"));
    scene.remark("cleared, once: the round is the next; old votes are of the last one");
    scene.send(clear(21, 5, 0, b"sred"));
    scene.send(clear(21, 5, 0, b"sred"));
    scene.send(vote(21, 3, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.send(vote(22, 4, 0, b"sred"));
    scene.send(decided(0, 0, false));
    scene.send(vote(21, 6, 0, b"sred"));
    scene.state();
    scene.remark("moved: the server counts, and the row takes no ballot any more");
    scene.send(bare(&server(Kind::MapMove, 21), &about(1, 0, 0)));
    scene.send(vote(21, 7, 1, b"sgreen"));
    scene.send(vote(21, 7, 1, b"sgreen"));
    scene.send(clear(21, 8, 1, b"sgreen"));
    scene.remark("keys of the longest length, and longer; none; two; one that is cut off");
    scene.send(vote(21, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.send(vote(22, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.send(vote(21, 10, 2, &[b'k'; MAX_BALLOT_KEY + 1]));
    scene.send(vote(21, 11, 2, b""));
    scene.send(entries(&caller(21, Kind::MapPairs, 12), &about(2, MapFlags::COUNT, 2), &[b"sa", b"sb"]));
    let mut cut = vote(21, 13, 2, b"sred");
    let at = cut.len() - 13;
    cut[at] += 1;
    scene.send(cut);
    scene.remark("rows that are not there");
    scene.send(vote(21, 14, 4, b"sred"));
    scene.send(decided(4, 0, false));
    scene.send(bare(&server(Kind::MapMove, 21), &about(u32::MAX, 0, 0)));
    scene.remark("a vote that is windows old is stale; pairs that are no votes pass");
    scene.send(vote(21, 3 + 256, 3, b"sred"));
    scene.send(vote(21, 3, 3, b"sred"));
    scene.send(entries(&caller(21, Kind::MapPairs, 3), &about(3, MapFlags::ADD, 0), &[b"sred"]));
    scene.remark("a reset forgets ballots and moves; numbers it does not");
    scene.step(Step::Reset(2));
    scene.send(vote(21, 15, 1, b"sgreen"));
    scene.send(vote(21, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.end()
}
