//! Frames that a switch program or an element can work on for ever: a window of them, each of which
//! comes back and goes out again as its successor.
//!
//! One generator plays all hosts of an application. *Linear*: a worker and the server of a SyncAgtr
//! application with a threshold of one. Each contribution is added and its sum sent on to the
//! server, each result clears the row on its way to the worker, which begins the row's next round.
//! So every lane is written once per frame. *Keyed*: a caller that adds pairs and asks for the
//! values: answers are as long as requests. A switch forwards every frame, as a reflector does.

use pathcall_program::{Application, Endpoint};
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{
    Base, BaseRepr, Flags, KEYED_LANES, KEYED_WIDTH, Kind, LINEAR_LANES, MAX_FRAME, MapFlags, MapFrame, MapRepr,
    TokenKey, W_MAX,
};

/// Frames in flight: one window.
pub(crate) const WINDOW: u32 = W_MAX;
pub(crate) const GAID: u32 = 1;
pub(crate) const EPOCH: u32 = 1;
pub(crate) const SERVER: u32 = 1;
pub(crate) const WORKER: u32 = 2;
/// Who takes part, and how many flow slots each has.
pub(crate) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint { endpoint: SERVER, incarnation: SERVER, gaid: GAID, slot_base: 0, slots: 0 },
    Endpoint { endpoint: WORKER, incarnation: WORKER, gaid: GAID, slot_base: 0, slots: 1 },
];

const LINEAR: u16 = MapFlags::LINEAR | MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND;
const KEYED: u16 = MapFlags::ADD | MapFlags::GET;

/// Which frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Rounds of 256 lanes.
    Linear,
    /// Sums of 32 pairs.
    Keyed,
}

impl Shape {
    pub(crate) const ALL: [Self; 2] = [Self::Linear, Self::Keyed];

    /// What a figure calls it.
    pub(crate) fn name(self) -> String {
        let what = match self {
            Self::Linear => "linear lanes",
            Self::Keyed => "keyed pairs",
        };
        format!("{} {what}, {} bytes", self.lanes(), self.frame_len())
    }

    fn lanes(self) -> usize {
        if self == Self::Linear { LINEAR_LANES } else { KEYED_LANES }
    }

    fn flags(self) -> u16 {
        if self == Self::Linear { LINEAR } else { KEYED }
    }

    fn frame_len(self) -> usize {
        frame_len(self.flags(), self.lanes(), 0)
    }

    /// The application's piece of memory.
    pub(crate) fn application(self) -> Application {
        let width = if self == Self::Linear { LINEAR_LANES } else { KEYED_WIDTH } as u32;
        Application { gaid: GAID, epoch: EPOCH, owner: SERVER, row_base: 0, rows: WINDOW, lane_base: 0, width }
    }

    /// The frame that place `row` of the window begins with.
    pub(crate) fn first(self, row: u32) -> Vec<u8> {
        let base = BaseRepr {
            gaid: GAID,
            epoch: EPOCH,
            src: WORKER,
            src_incarnation: WORKER,
            dst: SERVER,
            dst_incarnation: SERVER,
            seq: row + 1,
            round: u32::from(self == Self::Linear),
            ..BaseRepr::new(Kind::MapData)
        };
        let index = if self == Self::Linear { row } else { 0 };
        let threshold = u32::from(self == Self::Linear);
        let (flags, lanes) = (self.flags(), self.lanes() as u16);
        let map = MapRepr { flags, lanes, index, threshold, ..MapRepr::default() };
        let mut bytes = vec![0; self.frame_len()];
        let mut frame = emit(&base, &map, &mut bytes);
        for word in 0..self.lanes() / 32 {
            frame.set_bitmap(word, u32::MAX);
        }
        match self {
            Self::Linear => {
                for (i, lane) in frame.bitmap_and_lanes_mut().1.chunks_exact_mut(4).enumerate() {
                    lane.copy_from_slice(&(i as u32).to_be_bytes());
                }
            }
            // Opposite signs in neighbouring places: registers stay small however long it goes on.
            Self::Keyed => {
                let sign = if row.is_multiple_of(2) { 1 } else { -1 };
                (0..KEYED_LANES).for_each(|i| frame.set_keyed(i, row / 2, sign * (1 + i as i32)));
            }
        }
        bytes
    }

    /// Turns a frame that the switch has sent into what its receiver sends next.
    ///
    /// # Panics
    /// When the switch has sent something else than it must.
    pub(crate) fn next(self, frame: &mut [u8]) {
        match self {
            Self::Linear => next_round(frame),
            Self::Keyed => next_pairs(frame),
        }
    }
}

/// The server answers a sum with the round's result, the worker a result with its next contribution.
fn next_round(frame: &mut [u8]) {
    let mut frame = MapFrame::new_checked(frame).expect("a frame from the switch");
    let (row, round) = (frame.map().index(), frame.base().round());
    match frame.kind() {
        Kind::MapData => {
            assert!(frame.map().has(MapFlags::REACHED), "a sum");
            let mut base = frame.base_mut();
            base.set_kind(Kind::MapResult as u8);
            base.set_flags(Flags::FROM_SERVER | Flags::MCAST);
            base.set_src(SERVER);
            base.set_src_incarnation(SERVER);
            base.set_dst(0);
            base.set_dst_incarnation(0);
            frame.map_mut().set_flags(MapFlags::LINEAR | MapFlags::CLEAR | MapFlags::ROUND);
        }
        Kind::MapResult => {
            let mut base = frame.base_mut();
            base.set_kind(Kind::MapData as u8);
            base.set_flags(0);
            base.set_src(WORKER);
            base.set_src_incarnation(WORKER);
            base.set_dst(SERVER);
            base.set_dst_incarnation(SERVER);
            base.set_seq(row + 1 + round * WINDOW);
            base.set_round(round + 1);
            frame.map_mut().set_flags(LINEAR);
        }
        other => panic!("{other:?} from the switch"),
    }
}

/// The caller's window moves on: the same place of the window, the next number.
fn next_pairs(frame: &mut [u8]) {
    let seq = {
        let frame = MapFrame::new_checked(&*frame).expect("a frame from the switch");
        assert_eq!(frame.kind(), Kind::MapAck, "a sum that was acknowledged");
        assert!(!frame.map().has(MapFlags::OVERFLOW), "registers stay small");
        frame.base().seq()
    };
    frame.copy_from_slice(&Shape::Keyed.first((seq - 1) % WINDOW));
    MapFrame::new_checked(frame).expect("just written").base_mut().set_seq(seq + WINDOW);
}

/// The frame as its sender signs it, if there is a key.
pub(crate) fn with_token(key: Option<TokenKey>, frame: Vec<u8>) -> Vec<u8> {
    let Some(key) = key else { return frame };
    key.seal(&frame, &mut [0; MAX_FRAME]).expect("room for a token").to_vec()
}

/// The frame as it was before it was signed, if it was.
pub(crate) fn without_token(mut frame: Vec<u8>) -> Vec<u8> {
    let base = Base::new_checked(&frame[..]).expect("a frame").repr();
    if base.flags & Flags::TOKEN != 0 {
        frame.drain(Base::LEN..Base::LEN + TOKEN_LEN);
        BaseRepr { flags: base.flags & !Flags::TOKEN, length: frame.len() as u16, ..base }.emit(&mut frame);
    }
    frame
}
