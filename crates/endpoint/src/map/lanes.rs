//! Lanes in memory and in frames, with 32 or 64 bits; big-endian in frames.

use std::borrow::Cow;
use std::ops::Range;

/// Values of an array, with 32 bits each if all values fit.
#[derive(Debug, Clone)]
pub enum Lanes {
    /// All values fit 32 bits.
    Narrow(Vec<i32>),
    /// Some values may need 64 bits.
    Wide(Vec<i64>),
}

/// Slice of [`Lanes`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneSlice<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl Lanes {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(lanes) => lanes.len(),
            Self::Wide(lanes) => lanes.len(),
        }
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Value at `index`, if any.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<i64> {
        match self {
            Self::Narrow(lanes) => lanes.get(index).map(|lane| i64::from(*lane)),
            Self::Wide(lanes) => lanes.get(index).copied(),
        }
    }

    /// Iterator over the values.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        let (narrow, wide): (&[i32], &[i64]) = match self {
            Self::Narrow(lanes) => (lanes, &[]),
            Self::Wide(lanes) => (&[], lanes),
        };
        narrow.iter().map(|lane| i64::from(*lane)).chain(wide.iter().copied())
    }

    /// Appends a value.
    pub fn push(&mut self, value: i64) {
        match self {
            Self::Narrow(lanes) => match i32::try_from(value) {
                Ok(lane) => lanes.push(lane),
                Err(_) => self.widen().push(value),
            },
            Self::Wide(lanes) => lanes.push(value),
        }
    }

    /// Converts the values to 64 bits and returns them.
    pub fn widen(&mut self) -> &mut Vec<i64> {
        if let Self::Narrow(lanes) = self {
            *self = Self::Wide(lanes.iter().map(|lane| i64::from(*lane)).collect());
        }
        match self {
            Self::Wide(lanes) => lanes,
            Self::Narrow(_) => unreachable!("just widened"),
        }
    }

    /// Values with 64 bits each.
    #[must_use]
    pub fn wide(&self) -> Cow<'_, [i64]> {
        match self {
            Self::Narrow(_) => self.iter().collect(),
            Self::Wide(lanes) => lanes.into(),
        }
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> LaneSlice<'_> {
        match self {
            Self::Narrow(lanes) => LaneSlice::Narrow(&lanes[range]),
            Self::Wide(lanes) => LaneSlice::Wide(&lanes[range]),
        }
    }

    /// Overwrites the lanes in `range` with 32-bit lanes from a frame.
    pub(crate) fn copy_narrow(&mut self, range: Range<usize>, bytes: &[u8]) {
        match self {
            Self::Narrow(lanes) => lanes[range].iter_mut().zip(narrow_lanes(bytes)).for_each(|(lane, v)| *lane = v),
            Self::Wide(lanes) => {
                lanes[range].iter_mut().zip(narrow_lanes(bytes)).for_each(|(lane, v)| *lane = v.into())
            }
        }
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

/// Compares values, not widths.
impl PartialEq for Lanes {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Narrow(one), Self::Narrow(other)) => one == other,
            (Self::Wide(one), Self::Wide(other)) => one == other,
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl Eq for Lanes {}

impl FromIterator<i64> for Lanes {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        let mut lanes = Self::default();
        values.into_iter().for_each(|value| lanes.push(value));
        lanes
    }
}

impl From<Vec<i64>> for Lanes {
    fn from(values: Vec<i64>) -> Self {
        if narrow(&values) {
            Self::Narrow(values.iter().map(|value| *value as i32).collect())
        } else {
            Self::Wide(values)
        }
    }
}

impl LaneSlice<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Narrow(lanes) => lanes.len(),
            Self::Wide(lanes) => lanes.len(),
        }
    }

    /// Whether every value fits a 32-bit lane.
    pub(crate) fn is_narrow(self) -> bool {
        match self {
            Self::Narrow(_) => true,
            Self::Wide(lanes) => narrow(lanes),
        }
    }

    /// Part of the slice.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Narrow(lanes) => Self::Narrow(&lanes[range]),
            Self::Wide(lanes) => Self::Wide(&lanes[range]),
        }
    }

    /// Writes 32-bit lanes. All values must fit.
    pub(crate) fn put_narrow(self, out: &mut [u8]) {
        match self {
            Self::Narrow(lanes) => {
                for (out, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *out = lane.to_be_bytes();
                }
            }
            Self::Wide(lanes) => {
                for (out, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *out = (*lane as i32).to_be_bytes();
                }
            }
        }
    }

    /// Writes 64-bit lanes.
    pub(crate) fn put_wide(self, out: &mut [u8]) {
        match self {
            Self::Narrow(lanes) => {
                for (out, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *out = i64::from(*lane).to_be_bytes();
                }
            }
            Self::Wide(lanes) => {
                for (out, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *out = lane.to_be_bytes();
                }
            }
        }
    }
}

/// Lanes in a part of a wide row; a row of 256 lanes has two parts.
pub(crate) const WIDE_PART: usize = 128;

/// Whether all values fit 32-bit lanes. Without branches, so that the compiler vectorises the loop.
fn narrow(values: &[i64]) -> bool {
    let above = |v: &i64| v.wrapping_add(1 << 31).cast_unsigned() >> 32;
    values.iter().fold(0, |bits, v| bits | above(v)) == 0
}

/// Whether a 32-bit lane is at an end of its range, so that its sum may have overflowed.
pub(crate) fn any_saturated(bytes: &[u8]) -> bool {
    let at_end = |lane: i32| lane == i32::MAX || lane == i32::MIN;
    narrow_lanes(bytes).fold(false, |any, lane| any | at_end(lane))
}

/// Reads 32-bit lanes.
pub(crate) fn narrow_lanes(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.chunks_exact(4).map(|lane| i32::from_be_bytes([lane[0], lane[1], lane[2], lane[3]]))
}

/// Reads 64-bit lanes.
pub(crate) fn wide_lanes(bytes: &[u8]) -> impl Iterator<Item = i64> + '_ {
    bytes.chunks_exact(8).filter_map(|lane| lane.first_chunk().map(|b| i64::from_be_bytes(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_widen_at_first_wide_value() {
        let mut lanes: Lanes = [1, i64::from(i32::MIN)].into_iter().collect();
        assert!(matches!(lanes, Lanes::Narrow(_)));
        lanes.push(1 << 31);
        assert!(matches!(lanes, Lanes::Wide(_)));
        assert_eq!(*lanes.wide(), [1, i64::from(i32::MIN), 1 << 31]);
        assert_eq!(lanes, Lanes::from(vec![1, i64::from(i32::MIN), 1 << 31]));
        assert_eq!((lanes.get(2), lanes.get(3)), (Some(1 << 31), None));
    }

    #[test]
    fn lanes_of_different_width_compare_by_value() {
        let narrow = Lanes::from(vec![1, 2]);
        let mut wide = narrow.clone();
        wide.widen();
        assert_eq!(narrow, wide);
        wide.copy_narrow(1..2, &3i32.to_be_bytes());
        assert_ne!(narrow, wide);
        assert_eq!(*wide.wide(), [1, 3]);
    }

    #[test]
    fn ends_of_32_bit_range_are_detected() {
        let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        assert!(narrow(&[least, -1, 0, 1, most]));
        for wide in [least - 1, most + 1, i64::MIN, i64::MAX] {
            assert!(!narrow(&[0, wide, 0]), "{wide}");
        }
        for (lane, end) in
            [(i32::MAX, true), (i32::MIN, true), (i32::MAX - 1, false), (i32::MIN + 1, false), (0, false)]
        {
            assert_eq!(any_saturated(&[[0; 4], lane.to_be_bytes(), [0; 4]].concat()), end, "{lane}");
        }
    }
}
