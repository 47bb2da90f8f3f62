//! Text form of a frame, for reports of differences.

use std::fmt;

use pathcall_wire::{CloneFlags, CloneFrame, Flags, MapFlags, MapFrame};

/// Fields of a frame that are not zero.
#[derive(Debug, Clone, Copy)]
pub struct Decoded<'a>(pub &'a [u8]);

/// Largest number of lanes, and of trailing bytes, that are shown.
const SHOWN: usize = 32;

impl fmt::Display for Decoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(frame) = CloneFrame::new_checked(self.0) {
            return call(f, &frame);
        }
        let frame = match MapFrame::new_checked(self.0) {
            Ok(frame) => frame,
            Err(error) => {
                write!(f, "{} bytes, no frame ({error}): ", self.0.len())?;
                return hex(f, self.0);
            }
        };
        let (base, map) = (frame.base().repr(), frame.map().repr());
        write!(f, "{:?} {}.{}→{}.{}", frame.kind(), base.src, base.src_incarnation, base.dst, base.dst_incarnation)?;
        write!(f, " gaid {} epoch {} slot {} seq {} round {}", base.gaid, base.epoch, base.slot, base.seq, base.round)?;
        names(f, base.flags, &BASE_FLAGS)?;
        if let Some(token) = frame.base().token() {
            write!(f, " token {token:016x}")?;
        }
        f.write_str(" │")?;
        let fields = [
            ("index", map.index),
            ("threshold", map.threshold),
            ("worker", map.worker.into()),
            ("tag", map.tag),
            ("first_lane", map.first_lane.into()),
        ];
        for (name, value) in fields.into_iter().filter(|(_, value)| *value != 0) {
            write!(f, " {name} {value}")?;
        }
        write!(f, " {:?} {} to {:?}", frame.op(), map.para, frame.target())?;
        names(f, map.flags, &MAP_FLAGS)?;
        lanes(f, &frame)?;
        if !frame.payload().is_empty() {
            write!(f, " │ payload {} ", frame.payload().len())?;
            hex(f, frame.payload())?;
        }
        Ok(())
    }
}

fn call(f: &mut fmt::Formatter<'_>, frame: &CloneFrame<&[u8]>) -> fmt::Result {
    let (base, head) = (frame.base().repr(), frame.head().repr());
    write!(f, "{:?} {}.{}→{}.{}", frame.kind(), base.src, base.src_incarnation, base.dst, base.dst_incarnation)?;
    write!(f, " gaid {} version {} seq {}", base.gaid, base.epoch, base.seq)?;
    names(f, base.flags, &BASE_FLAGS)?;
    if let Some(token) = frame.base().token() {
        write!(f, " token {token:016x}")?;
    }
    write!(f, " │ id {:#x} group {} sid {} state {}", head.req_id, head.grp, head.sid, head.state)?;
    write!(f, " clo {} idx {} switch {} attempt {}", head.clo, head.idx, head.switch_id, head.attempt)?;
    write!(f, " part {} of {}", head.part, head.parts)?;
    names(f, head.flags.into(), &CALL_FLAGS)
}

fn lanes(f: &mut fmt::Formatter<'_>, frame: &MapFrame<&[u8]>) -> fmt::Result {
    let count = frame.lane_count();
    if count == 0 {
        return Ok(());
    }
    write!(f, " │ {count} lanes, marked")?;
    (0..count.div_ceil(32)).try_for_each(|word| write!(f, " {:x}", frame.bitmap(word)))?;
    f.write_str(":")?;
    for i in 0..count.min(SHOWN) {
        match (frame.linear(i), frame.keyed(i)) {
            (Some(value), _) => write!(f, " {value}")?,
            (None, Some((row, value))) => write!(f, " {row}:{value}")?,
            (None, None) => return Ok(()),
        }
    }
    f.write_str(if count > SHOWN { " …" } else { "" })
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().take(SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
    f.write_str(if bytes.len() > SHOWN { "…" } else { "" })
}

fn names(f: &mut fmt::Formatter<'_>, flags: u16, table: &[(u16, &str)]) -> fmt::Result {
    table.iter().filter(|(flag, _)| flags & flag != 0).try_for_each(|(_, name)| write!(f, " {name}"))
}

const BASE_FLAGS: [(u16, &str); 7] = [
    (Flags::FLIP, "FLIP"),
    (Flags::ECN, "ECN"),
    (Flags::FROM_SERVER, "FROM_SERVER"),
    (Flags::MCAST, "MCAST"),
    (Flags::CROSS, "CROSS"),
    (Flags::TOKEN, "TOKEN"),
    (Flags::NOT_ADMITTED, "NOT_ADMITTED"),
];

const CALL_FLAGS: [(u16, &str); 3] = [
    (CloneFlags::CLONE as u16, "CLONE"),
    (CloneFlags::SHORTEST as u16, "SHORTEST"),
    (CloneFlags::DIRECT as u16, "DIRECT"),
];

const MAP_FLAGS: [(u16, &str); 16] = [
    (MapFlags::OVERFLOW, "OVERFLOW"),
    (MapFlags::COUNT, "COUNT"),
    (MapFlags::CLEAR, "CLEAR"),
    (MapFlags::ADD, "ADD"),
    (MapFlags::GET, "GET"),
    (MapFlags::LINEAR, "LINEAR"),
    (MapFlags::WIDE, "WIDE"),
    (MapFlags::BARE, "BARE"),
    (MapFlags::ROUND, "ROUND"),
    (MapFlags::REACHED, "REACHED"),
    (MapFlags::OLD, "OLD"),
    (MapFlags::DIVERTED, "DIVERTED"),
    (MapFlags::LOGICAL, "LOGICAL"),
    (MapFlags::DENIED, "DENIED"),
    (MapFlags::CLAIM, "CLAIM"),
    (MapFlags::WAIT, "WAIT"),
];
