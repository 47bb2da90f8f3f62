//! Header of *place* in responses: time that the request spent in the server's host (LEO Fig. 7).
//!
//! ```text
//! 0        31
//! │ t4 − t3 │ nanoseconds; all ones: not measured
//! ```
//!
//! Four bytes before the payload of each response of a placed method, big-endian.

/// Length in bytes.
pub const LEN: usize = 4;
/// Maximum time in nanoseconds, about 4.3 s; longer times are limited to it.
pub const NS_MAX: u32 = u32::MAX - 1;
/// Encoding of a time that was not measured.
const NOT_MEASURED: u32 = u32::MAX;

/// Time that a request spent in the server's host, `t4 − t3`, in nanoseconds; `None` if not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostTime(pub Option<u32>);

impl HostTime {
    /// Host time from nanoseconds, limited to [`NS_MAX`].
    #[must_use]
    pub fn of(ns: u64) -> Self {
        Self(Some(u32::try_from(ns).map_or(NS_MAX, |ns| ns.min(NS_MAX))))
    }

    /// Encoded time.
    #[must_use]
    pub const fn bytes(self) -> [u8; LEN] {
        match self.0 {
            Some(NOT_MEASURED) => NS_MAX.to_be_bytes(),
            Some(ns) => ns.to_be_bytes(),
            None => NOT_MEASURED.to_be_bytes(),
        }
    }

    /// Decodes the time and returns it with the remaining bytes; `None` for fewer than [`LEN`] bytes.
    #[must_use]
    pub const fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes.split_first_chunk() {
            Some((&time, rest)) => match u32::from_be_bytes(time) {
                NOT_MEASURED => Some((Self(None), rest)),
                ns => Some((Self(Some(ns)), rest)),
            },
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_time_round_trips_and_is_limited() {
        for (ns, expected) in [(0, 0), (1, 1), (u64::from(NS_MAX), NS_MAX), (1 << 32, NS_MAX), (u64::MAX, NS_MAX)] {
            let bytes = [&HostTime::of(ns).bytes()[..], b"value"].concat();
            assert_eq!(HostTime::split(&bytes), Some((HostTime(Some(expected)), &b"value"[..])));
        }
        assert_eq!(HostTime::of(0x0102_0304).bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn unmeasured_host_time_is_all_ones() {
        assert_eq!(HostTime::default().bytes(), [0xff; LEN]);
        assert_eq!(HostTime::split(&[0xff; 5]), Some((HostTime(None), &[0xff][..])));
        assert_eq!(
            HostTime(Some(u32::MAX)).bytes(),
            HostTime(Some(NS_MAX)).bytes(),
            "a measured time is never encoded as unmeasured"
        );
        assert_eq!(HostTime::split(&[0; 3]), None);
    }
}
