//! Lanes in memory and in frames: 32 or 64 bits, big-endian on the wire.

use std::borrow::Cow;
use std::ops::Range;

/// The values of an array, in 32 bits as long as all of them fit.
#[derive(Debug, Clone)]
pub enum Lanes {
    /// Every value fits 32 bits.
    Narrow(Vec<i32>),
    /// Some value may not.
    Wide(Vec<i64>),
}

/// A run of [`Lanes`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl Lanes {
    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Narrow(lanes) => lanes.len(),
            Self::Wide(lanes) => lanes.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<i64> {
        match self {
            Self::Narrow(lanes) => lanes.get(index).map(|lane| i64::from(*lane)),
            Self::Wide(lanes) => lanes.get(index).copied(),
        }
    }

    /// The values in turn.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        let (narrow, wide): (&[i32], &[i64]) = match self {
            Self::Narrow(lanes) => (lanes, &[]),
            Self::Wide(lanes) => (&[], lanes),
        };
        narrow.iter().map(|lane| i64::from(*lane)).chain(wide.iter().copied())
    }

    /// Adds a value at the end.
    pub fn push(&mut self, value: i64) {
        match self {
            Self::Narrow(lanes) => match i32::try_from(value) {
                Ok(lane) => lanes.push(lane),
                Err(_) => self.widen().push(value),
            },
            Self::Wide(lanes) => lanes.push(value),
        }
    }

    /// The values in 64 bits, from now on.
    pub fn widen(&mut self) -> &mut Vec<i64> {
        if let Self::Narrow(lanes) = self {
            *self = Self::Wide(lanes.iter().map(|lane| i64::from(*lane)).collect());
        }
        match self {
            Self::Wide(lanes) => lanes,
            Self::Narrow(_) => unreachable!("just widened"),
        }
    }

    /// The values, each in 64 bits.
    #[must_use]
    pub fn wide(&self) -> Cow<'_, [i64]> {
        match self {
            Self::Narrow(_) => self.iter().collect(),
            Self::Wide(lanes) => lanes.into(),
        }
    }

    pub(crate) fn run(&self, range: Range<usize>) -> Run<'_> {
        match self {
            Self::Narrow(lanes) => Run::Narrow(&lanes[range]),
            Self::Wide(lanes) => Run::Wide(&lanes[range]),
        }
    }

    /// Takes 32-bit lanes from a frame for those of `range`, which they fill.
    pub(crate) fn take_narrow(&mut self, range: Range<usize>, bytes: &[u8]) {
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

/// The same values, whatever their width.
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

impl Run<'_> {
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

    /// A part of it.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::Narrow(lanes) => Self::Narrow(&lanes[range]),
            Self::Wide(lanes) => Self::Wide(&lanes[range]),
        }
    }

    /// Writes 32-bit lanes; the values are known to fit.
    pub(crate) fn put_narrow(self, out: &mut [u8]) {
        match self {
            Self::Narrow(lanes) => {
                for (out, lane) in out.as_chunks_mut().0.iter_mut().zip(lanes) {
                    *out = lane.to_be_bytes();
                }
            }
            Self::Wide(lanes) => put_narrow(lanes, out),
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
            Self::Wide(lanes) => put_wide(lanes, out),
        }
    }
}

/// Lanes of a part of a wide row: two parts make a row of 256.
pub(crate) const WIDE_PART: usize = 128;

/// Whether every value fits a 32-bit lane. Without a branch for each, so that it is vectorised.
pub(crate) fn narrow(values: &[i64]) -> bool {
    let above = |v: &i64| v.wrapping_add(1 << 31).cast_unsigned() >> 32;
    values.iter().fold(0, |bits, v| bits | above(v)) == 0
}

/// Whether a 32-bit lane stands at an end of its range: its sum may have left it.
pub(crate) fn any_saturated(bytes: &[u8]) -> bool {
    let at_end = |lane: i32| lane == i32::MAX || lane == i32::MIN;
    narrow_lanes(bytes).fold(false, |any, lane| any | at_end(lane))
}

/// Writes 32-bit lanes; the values are known to fit.
pub(crate) fn put_narrow(values: &[i64], out: &mut [u8]) {
    for (lane, value) in out.chunks_exact_mut(4).zip(values) {
        lane.copy_from_slice(&(*value as i32).to_be_bytes());
    }
}

/// Writes 64-bit lanes.
pub(crate) fn put_wide(values: &[i64], out: &mut [u8]) {
    for (lane, value) in out.chunks_exact_mut(8).zip(values) {
        lane.copy_from_slice(&value.to_be_bytes());
    }
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
    fn lanes_are_narrow_until_a_value_is_not() {
        let mut lanes: Lanes = [1, i64::from(i32::MIN)].into_iter().collect();
        assert!(matches!(lanes, Lanes::Narrow(_)));
        lanes.push(1 << 31);
        assert!(matches!(lanes, Lanes::Wide(_)));
        assert_eq!(*lanes.wide(), [1, i64::from(i32::MIN), 1 << 31]);
        assert_eq!(lanes, Lanes::from(vec![1, i64::from(i32::MIN), 1 << 31]));
        assert_eq!((lanes.get(2), lanes.get(3)), (Some(1 << 31), None));
    }

    #[test]
    fn lanes_with_the_same_values_are_equal_whatever_their_width() {
        let narrow = Lanes::from(vec![1, 2]);
        let mut wide = narrow.clone();
        wide.widen();
        assert_eq!(narrow, wide);
        wide.take_narrow(1..2, &3i32.to_be_bytes());
        assert_ne!(narrow, wide);
        assert_eq!(*wide.wide(), [1, 3]);
    }

    #[test]
    fn the_ends_of_32_bits_are_known() {
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
