//! Corpus cases of ballots.

use pathcall_conformance::ProgramStep;
use pathcall_conformance::corpus::Case;
use pathcall_conformance::frame::{bare, entries};
use pathcall_wire::pairs::MAX_BALLOT_KEY;
use pathcall_wire::{BaseRepr, Flags, ForwardTarget, FrameKind, MapFlags, MapRepr};

use super::case_recorder::{CaseRecorder, caller, server};

fn about(row: u32, flags: u16, threshold: u32) -> MapRepr {
    MapRepr {
        flags: flags | MapFlags::BARE,
        to: ForwardTarget::Server as u8,
        index: row,
        threshold,
        ..MapRepr::default()
    }
}

fn vote(from: u32, seq: u32, row: u32, key: &[u8]) -> Vec<u8> {
    entries(&caller(from, FrameKind::MapPairs, seq), &about(row, MapFlags::COUNT, 2), &[key])
}

/// Vote of a caller that waits for the decision.
fn waiting_vote(from: u32, seq: u32, row: u32, flags: u16, key: &[u8]) -> Vec<u8> {
    let map = MapRepr { to: ForwardTarget::All as u8, ..about(row, MapFlags::COUNT | flags, 2) };
    entries(&caller(from, FrameKind::MapPairs, seq), &map, &[key])
}

fn clear(from: u32, seq: u32, row: u32, key: &[u8]) -> Vec<u8> {
    entries(&caller(from, FrameKind::MapPairs, seq), &about(row, MapFlags::CLEAR, 0), &[key])
}

/// Server's message that the ballot of a row is decided.
fn decided(row: u32, round: u32, mcast: bool) -> Vec<u8> {
    let base = server(FrameKind::MapPairsAck, 21);
    let flags = base.flags | if mcast { Flags::MCAST } else { 0 };
    bare(&BaseRepr { round, flags, ..base }, &about(row, MapFlags::COUNT, 0))
}

pub fn ballots() -> Case {
    let mut scene = CaseRecorder::new("ballots");
    scene.remark("the first vote is dropped, the second reaches the threshold; repeats have the same outcome");
    scene.send(vote(21, 1, 0, b"sred"));
    scene.send(vote(21, 1, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.remark("a decision of another round has no effect, nor one for a row without a ballot");
    scene.send(decided(0, 1, false));
    scene.send(decided(1, 0, false));
    scene.send(vote(21, 2, 0, b"sred"));
    scene.remark("decided: votes are answered with the decision; votes that went to the server are answered there");
    scene.send(decided(0, 0, true));
    scene.send(vote(21, 3, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.remark("votes for another key of the row go to the server, whatever the key's first bytes");
    scene.send(vote(21, 4, 0, b"sre"));
    scene.send(vote(21, 4, 0, b"sre"));
    scene.send(vote(22, 2, 0, b"sred\0"));
    scene.send(clear(22, 3, 0, b"sblue"));
    scene.remark("cleared once: the next round begins; late votes belong to the previous one");
    scene.send(clear(21, 5, 0, b"sred"));
    scene.send(clear(21, 5, 0, b"sred"));
    scene.send(vote(21, 3, 0, b"sred"));
    scene.send(vote(22, 1, 0, b"sred"));
    scene.send(vote(22, 4, 0, b"sred"));
    scene.send(decided(0, 0, false));
    scene.send(vote(21, 6, 0, b"sred"));
    scene.state();
    scene.remark("moved: the server counts the votes, and the row takes no more ballots");
    scene.send(bare(&server(FrameKind::MapMove, 21), &about(1, 0, 0)));
    scene.send(vote(21, 7, 1, b"sgreen"));
    scene.send(vote(21, 7, 1, b"sgreen"));
    scene.send(clear(21, 8, 1, b"sgreen"));
    scene.remark("keys of the maximum length, and longer; no key; two keys; a truncated key");
    scene.send(vote(21, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.send(vote(22, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.send(vote(21, 10, 2, &[b'k'; MAX_BALLOT_KEY + 1]));
    scene.send(vote(21, 11, 2, b""));
    scene.send(entries(&caller(21, FrameKind::MapPairs, 12), &about(2, MapFlags::COUNT, 2), &[b"sa", b"sb"]));
    let mut cut = vote(21, 13, 2, b"sred");
    let at = cut.len() - 13;
    cut[at] += 1;
    scene.send(cut);
    scene
        .remark("callers wait: the vote at the threshold is the decision, for all members; later votes get the answer");
    scene.send(waiting_vote(21, 100, 3, MapFlags::GET, b"splan"));
    scene.send(waiting_vote(21, 101, 3, 0, b"splan"));
    scene.send(waiting_vote(22, 101, 3, MapFlags::GET, b"splan"));
    scene.send(waiting_vote(22, 102, 3, 0, b"splan"));
    scene.send(waiting_vote(22, 102, 3, 0, b"splan"));
    scene.send(waiting_vote(21, 101, 3, 0, b"splan"));
    scene.send(waiting_vote(21, 102, 3, 0, b"splan"));
    scene.remark("a query of the decision is answered, also again; one about another key goes to the server");
    scene.send(waiting_vote(22, 103, 3, MapFlags::GET, b"splan"));
    scene.send(waiting_vote(22, 103, 3, MapFlags::GET, b"splan"));
    scene.send(waiting_vote(22, 104, 3, MapFlags::GET, b"splane"));
    scene.remark("cleared: the vote that decided has the same answer; the next round is undecided");
    scene.send(clear(22, 105, 3, b"splan"));
    scene.send(waiting_vote(22, 102, 3, 0, b"splan"));
    scene.send(waiting_vote(22, 106, 3, MapFlags::GET, b"splan"));
    scene.send(clear(22, 107, 3, b"splan"));
    scene.remark("the server records the decision first: votes from the threshold on are forwarded until then");
    scene.send(waiting_vote(21, 103, 3, MapFlags::WAIT, b"splan"));
    scene.send(waiting_vote(22, 108, 3, MapFlags::WAIT, b"splan"));
    scene.send(waiting_vote(21, 104, 3, MapFlags::WAIT, b"splan"));
    scene.send(waiting_vote(21, 105, 3, MapFlags::GET, b"splan"));
    scene.send(decided(3, 2, true));
    scene.send(waiting_vote(21, 106, 3, MapFlags::WAIT, b"splan"));
    scene.send(waiting_vote(21, 105, 3, MapFlags::GET, b"splan"));
    scene.state();
    scene.step(ProgramStep::Reset(2));
    scene.remark("rows out of range");
    scene.send(vote(21, 14, 4, b"sred"));
    scene.send(decided(4, 0, false));
    scene.send(bare(&server(FrameKind::MapMove, 21), &about(u32::MAX, 0, 0)));
    scene.remark("a vote several windows old is stale; pairs without votes pass");
    scene.send(vote(21, 3 + 256, 3, b"sred"));
    scene.send(vote(21, 3, 3, b"sred"));
    scene.send(entries(&caller(21, FrameKind::MapPairs, 3), &about(3, MapFlags::ADD, 0), &[b"sred"]));
    scene.remark("a reset clears ballots and moves, but not sequence numbers");
    scene.step(ProgramStep::Reset(2));
    scene.send(vote(21, 15, 1, b"sgreen"));
    scene.send(vote(21, 9, 2, &[b'k'; MAX_BALLOT_KEY]));
    scene.end()
}
