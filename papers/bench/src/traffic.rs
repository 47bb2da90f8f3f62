//! Endless traffic for a switch program or an element: a window of frames, each of which returns and leaves again as
//! its successor.
//!
//! One generator plays all hosts of an application. *Linear*: a worker and the server of a SyncAgtr application with a
//! threshold of one. Each contribution is added and its sum forwarded to the server; each result clears the row on its
//! way to the worker, which starts the next round of the row. So every lane is written once per frame. *Keyed*: a
//! caller that adds pairs and reads the values: answers are as long as requests. A switch forwards every frame, like a
//! reflector.

use pathcall_program::{Endpoint, InstalledApplication};
use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{
    Base, BaseRepr, Flags, FrameKind, KEYED_LANES, KEYED_WIDTH, LINEAR_LANES, MAX_FRAME, MapFlags, MapFrame, MapRepr,
    TokenKey, W_MAX,
};

/// Frames in flight: one window.
pub(crate) const WINDOW: u32 = W_MAX;
pub(crate) const GAID: u32 = 1;
pub(crate) const EPOCH: u32 = 1;
pub(crate) const SERVER: u32 = 1;
pub(crate) const WORKER: u32 = 2;
/// Endpoints, with their flow slots.
pub(crate) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint { endpoint: SERVER, incarnation: SERVER, gaid: GAID, slot_base: 0, slots: 0 },
    Endpoint { endpoint: WORKER, incarnation: WORKER, gaid: GAID, slot_base: 0, slots: 1 },
];

const LINEAR: u16 = MapFlags::LINEAR | MapFlags::ADD | MapFlags::COUNT | MapFlags::ROUND;
const KEYED: u16 = MapFlags::ADD | MapFlags::GET;

/// Kind of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameShape {
    /// Rounds of 256 lanes.
    Linear,
    /// Sums of 32 pairs.
    Keyed,
}

impl FrameShape {
    pub(crate) const ALL: [Self; 2] = [Self::Linear, Self::Keyed];

    /// Name in figures.
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

    /// Memory of the application.
    pub(crate) fn application(self) -> InstalledApplication {
        let width = if self == Self::Linear { LINEAR_LANES } else { KEYED_WIDTH } as u32;
        InstalledApplication { gaid: GAID, epoch: EPOCH, owner: SERVER, row_base: 0, rows: WINDOW, lane_base: 0, width }
    }

    /// First frame at position `row` of the window.
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
            ..BaseRepr::new(FrameKind::MapData)
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
            // Neighbouring positions have opposite signs, so registers stay small.
            Self::Keyed => {
                let sign = if row.is_multiple_of(2) { 1 } else { -1 };
                (0..KEYED_LANES).for_each(|i| frame.set_keyed(i, row / 2, sign * (1 + i as i32)));
            }
        }
        bytes
    }

    /// Turns a frame sent by the switch into the next frame of its receiver.
    ///
    /// # Panics
    /// Panics if the switch has sent an unexpected frame.
    pub(crate) fn next(self, frame: &mut [u8]) {
        match self {
            Self::Linear => next_round(frame),
            Self::Keyed => next_pairs(frame),
        }
    }
}

/// Next frame of a round: the server answers a sum with the result, the worker answers a result with its next
/// contribution.
fn next_round(frame: &mut [u8]) {
    let mut frame = MapFrame::new_checked(frame).expect("a frame from the switch");
    let (row, round) = (frame.map().index(), frame.base().round());
    match frame.kind() {
        FrameKind::MapData => {
            assert!(frame.map().has(MapFlags::REACHED), "a sum");
            let mut base = frame.base_mut();
            base.set_kind(FrameKind::MapResult as u8);
            base.set_flags(Flags::FROM_SERVER | Flags::MCAST);
            base.set_src(SERVER);
            base.set_src_incarnation(SERVER);
            base.set_dst(0);
            base.set_dst_incarnation(0);
            frame.map_mut().set_flags(MapFlags::LINEAR | MapFlags::CLEAR | MapFlags::ROUND);
        }
        FrameKind::MapResult => {
            let mut base = frame.base_mut();
            base.set_kind(FrameKind::MapData as u8);
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

/// Next frame of the caller: the same position of the window, the next sequence number.
fn next_pairs(frame: &mut [u8]) {
    let seq = {
        let frame = MapFrame::new_checked(&*frame).expect("a frame from the switch");
        assert_eq!(frame.kind(), FrameKind::MapAck, "a sum that was acknowledged");
        assert!(!frame.map().has(MapFlags::OVERFLOW), "registers stay small");
        frame.base().seq()
    };
    frame.copy_from_slice(&FrameShape::Keyed.first((seq - 1) % WINDOW));
    MapFrame::new_checked(frame).expect("just written").base_mut().set_seq(seq + WINDOW);
}

/// Signs a frame if there is a key.
pub(crate) fn with_token(key: Option<TokenKey>, frame: Vec<u8>) -> Vec<u8> {
    let Some(key) = key else { return frame };
    key.insert_token(&frame, &mut [0; MAX_FRAME]).expect("room for a token").to_vec()
}

/// Removes the token of a frame, if any.
pub(crate) fn without_token(mut frame: Vec<u8>) -> Vec<u8> {
    let base = Base::new_checked(&frame[..]).expect("a frame").repr();
    if base.flags & Flags::TOKEN != 0 {
        frame.drain(Base::LEN..Base::LEN + TOKEN_LEN);
        BaseRepr { flags: base.flags & !Flags::TOKEN, length: frame.len() as u16, ..base }.emit(&mut frame);
    }
    frame
}
