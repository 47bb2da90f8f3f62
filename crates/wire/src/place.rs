//! What a response says of *place*: how long the server's host had the request (LEO Fig. 7).
//!
//! ```text
//! 0        31
//! │ t4 − t3 │ nanoseconds; all ones: not measured
//! ```
//!
//! Four bytes before the payload of each response of a placed method, big-endian.

/// Length in bytes.
pub const LEN: usize = 4;
/// The longest time that is told, in nanoseconds, about 4.3 s: longer ones are told as this.
pub const NS_MAX: u32 = u32::MAX - 1;
/// In place of a time that was not measured.
const NOT_MEASURED: u32 = u32::MAX;

/// Time that a request spent in the server's host, `t4 − t3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostTime(pub Option<u32>);

impl HostTime {
    /// Of a time in nanoseconds, at most [`NS_MAX`].
    #[must_use]
    pub fn of(ns: u64) -> Self {
        Self(Some(u32::try_from(ns).map_or(NS_MAX, |ns| ns.min(NS_MAX))))
    }

    /// As it travels.
    #[must_use]
    pub const fn bytes(self) -> [u8; LEN] {
        match self.0 {
            Some(ns) if ns != NOT_MEASURED => ns.to_be_bytes(),
            _ => NOT_MEASURED.to_be_bytes(),
        }
    }

    /// The time and what follows it; none of fewer than [`LEN`] bytes.
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
