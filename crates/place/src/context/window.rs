//! Memory that the other side reads and writes without asking an application: `write` and `read` (LEO Table II).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use crate::device::MESSAGE_MAX;

/// Windows of one context at most.
pub const WINDOWS_MAX: usize = 1 << 10;

/// Memory that others may reach.
pub trait Window: fmt::Debug + Send + Sync {
    /// How many bytes it has; fewer when it goes, and what was read or written meanwhile does not count then.
    fn len(&self) -> usize;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads, from a place that is in it; a write of the same bytes is seen whole or not at all.
    fn read(&self, at: usize, to: &mut [u8]);
    /// Writes, to a place that is in it.
    fn write(&self, at: usize, bytes: &[u8]);
}

/// Memory of the host.
#[derive(Debug)]
pub struct HostWindow(RwLock<Box<[u8]>>);

impl HostWindow {
    /// Memory that holds these bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(RwLock::new(bytes.into()))
    }
}

impl Window for HostWindow {
    fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn read(&self, at: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.0.read().unwrap_or_else(PoisonError::into_inner)[at..at + to.len()]);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.write().unwrap_or_else(PoisonError::into_inner)[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// What is wanted of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Bytes of it.
    Read {
        /// Its name.
        window: String,
        /// Where they begin.
        at: u64,
        /// How many.
        len: u64,
    },
    /// Bytes into it.
    Write {
        /// Its name.
        window: String,
        /// Where they go.
        at: u64,
        /// They.
        bytes: Bytes,
    },
}

/// Why a window was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// There is none of that name.
    #[error("no memory is registered as `{0}`")]
    Unknown(String),
    /// It is shorter.
    #[error("`{window}` has {has} bytes: none at {at} for {len} more")]
    Outside {
        /// The window.
        window: String,
        /// How many bytes it has.
        has: usize,
        /// Where it was to be reached.
        at: u64,
        /// How many bytes were wanted.
        len: u64,
    },
}

/// The windows of one context.
#[derive(Debug, Default)]
pub struct Windows(pub(super) BTreeMap<String, Arc<dyn Window>>);

impl Windows {
    /// Does what is wanted: the bytes that were read, or none.
    ///
    /// # Errors
    /// [`AccessError`]; nothing was read or written.
    pub fn access(&self, access: &Access) -> Result<Bytes, AccessError> {
        let (name, at, len) = match access {
            Access::Read { window, at, len } => (window, *at, *len),
            Access::Write { window, at, bytes } => (window, *at, bytes.len() as u64),
        };
        let window = self.0.get(name).ok_or_else(|| AccessError::Unknown(name.clone()))?;
        let inside = || {
            let has = window.len();
            let outside = || AccessError::Outside { window: name.clone(), has, at, len };
            at.checked_add(len).filter(|end| *end <= has as u64 && len <= MESSAGE_MAX as u64).ok_or_else(outside)
        };
        inside()?;
        let bytes = match access {
            Access::Read { .. } => {
                let mut bytes = vec![0; len as usize];
                window.read(at as usize, &mut bytes);
                bytes.into()
            }
            Access::Write { bytes, .. } => {
                window.write(at as usize, bytes);
                Bytes::new()
            }
        };
        // It may have gone meanwhile.
        inside().map(|_| bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Memory that goes while it is read.
    #[derive(Debug)]
    struct Going(AtomicBool);

    impl Window for Going {
        fn len(&self) -> usize {
            if self.0.load(Ordering::Acquire) { 0 } else { 8 }
        }

        fn read(&self, _: usize, _: &mut [u8]) {
            self.0.store(true, Ordering::Release);
        }

        fn write(&self, _: usize, _: &[u8]) {}
    }

    #[test]
    fn what_goes_while_it_is_read_is_refused() {
        let windows = Windows([("v".into(), Arc::new(Going(AtomicBool::new(false))) as Arc<dyn Window>)].into());
        let access = Access::Read { window: "v".into(), at: 0, len: 8 };
        let refused = windows.access(&access).expect_err("it has gone").to_string();
        assert_eq!(refused, "`v` has 0 bytes: none at 0 for 8 more");
    }

    #[test]
    fn what_is_outside_is_refused() {
        let windows = Windows([("v".into(), Arc::new(HostWindow::new([0; 8])) as Arc<dyn Window>)].into());
        let write = |at, bytes| windows.access(&Access::Write { window: "v".into(), at, bytes });
        let read = |window: &str, at, len| windows.access(&Access::Read { window: window.into(), at, len });
        assert_eq!(write(5, Bytes::from_static(b"abc")), Ok(Bytes::new()));
        assert_eq!(read("v", 4, 4), Ok(Bytes::from_static(b"\0abc")));
        for (at, len) in [(6, 3), (9, 0), (u64::MAX, 1), (0, u64::MAX)] {
            assert!(matches!(read("v", at, len), Err(AccessError::Outside { .. })), "{at} {len}");
        }
        assert!(matches!(write(8, Bytes::from_static(b"x")), Err(AccessError::Outside { .. })));
        assert_eq!(read("w", 0, 0).expect_err("none").to_string(), "no memory is registered as `w`");
    }
}
