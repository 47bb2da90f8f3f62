//! Memory windows, which the other side reads and writes without the application (LEO Table II, `write` and `read`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
#[cfg(target_os = "linux")]
pub use pathcall_shm::window::{SharedWindow, SharedWindowError};

use crate::device::{DeviceWindow, MESSAGE_MAX};

/// Limit on the windows of one context.
pub const WINDOWS_MAX: usize = 1 << 10;

/// Memory that the other side may access.
pub trait MemoryWindow: fmt::Debug + Send + Sync {
    /// Length in bytes. It may shrink; accesses during that time are then invalid.
    fn len(&self) -> usize;
    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether an access may wait for another process or a device. Then it runs on a thread of its own where others must
    /// not wait.
    fn may_wait(&self) -> bool {
        false
    }
    /// Reads at an offset within the memory; a concurrent write of the same bytes is seen wholly or not at all.
    ///
    /// # Errors
    /// When the memory cannot be read now.
    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure>;
    /// Writes at an offset within the memory.
    ///
    /// # Errors
    /// When the memory cannot be written now. No byte was written.
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure>;
    /// This window, if it is memory of a device; `None`: memory of the host.
    fn as_device_window(&self) -> Option<&DeviceWindow> {
        None
    }
}

/// Reason why memory cannot be accessed now, as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WindowFailure(pub String);

/// Window of host memory.
#[derive(Debug)]
pub struct HostWindow(RwLock<Box<[u8]>>);

impl HostWindow {
    /// Creates a window with this content.
    #[must_use]
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(RwLock::new(bytes.into()))
    }
}

impl MemoryWindow for HostWindow {
    fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        to.copy_from_slice(&self.0.read().unwrap_or_else(PoisonError::into_inner)[at..at + to.len()]);
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Memory that processes of this host share. An access of another process fails when the owner has ended.
#[cfg(target_os = "linux")]
impl MemoryWindow for SharedWindow {
    fn may_wait(&self) -> bool {
        true
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), WindowFailure> {
        check_owner(self)?;
        self.read(at, to).map_err(|error| WindowFailure(error.to_string()))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), WindowFailure> {
        check_owner(self)?;
        self.write(at, bytes).map_err(|error| WindowFailure(error.to_string()))
    }
}

#[cfg(target_os = "linux")]
fn check_owner(window: &SharedWindow) -> Result<(), WindowFailure> {
    if window.owner_has_ended() {
        return Err(WindowFailure(format!("the owner of shared window `{}` has ended", window.name())));
    }
    Ok(())
}

/// Access to a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowAccess {
    /// Read of bytes.
    Read {
        /// Name of the window.
        window: String,
        /// Offset of the first byte.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Write of bytes.
    Write {
        /// Name of the window.
        window: String,
        /// Offset of the first byte.
        at: u64,
        /// Bytes to write.
        bytes: Bytes,
    },
}

/// Error of an access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowAccessError {
    /// No window has this name.
    #[error("no memory is registered as `{0}`")]
    Unknown(String),
    /// The access is outside the window.
    #[error("access to {len} bytes at {at} exceeds window `{window}` of {has} bytes")]
    Outside {
        /// Name of the window.
        window: String,
        /// Length of the window in bytes.
        has: usize,
        /// Offset of the access.
        at: u64,
        /// Length of the access in bytes.
        len: u64,
    },
    /// The memory cannot be accessed now.
    #[error("access to window `{window}` failed: {reason}")]
    Failed {
        /// Name of the window.
        window: String,
        /// Reason of the failure.
        reason: WindowFailure,
    },
}

/// Windows of one context.
#[derive(Debug, Default)]
pub struct Windows(pub(super) BTreeMap<String, Arc<dyn MemoryWindow>>);

impl Windows {
    /// Whether a window has this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether an access may wait for another process or a device.
    #[must_use]
    pub fn may_wait(&self, access: &WindowAccess) -> bool {
        let (WindowAccess::Read { window, .. } | WindowAccess::Write { window, .. }) = access;
        self.0.get(window).is_some_and(|window| window.may_wait())
    }

    /// Executes an access; returns the bytes that were read, if any.
    ///
    /// # Errors
    /// [`WindowAccessError`]; no byte was written, unless the window has shrunk meanwhile.
    pub fn access(&self, access: &WindowAccess) -> Result<Bytes, WindowAccessError> {
        let (name, at, len) = match access {
            WindowAccess::Read { window, at, len } => (window, *at, *len),
            WindowAccess::Write { window, at, bytes } => (window, *at, bytes.len() as u64),
        };
        let window = self.0.get(name).ok_or_else(|| WindowAccessError::Unknown(name.clone()))?;
        let inside = || {
            let has = window.len();
            let outside = || WindowAccessError::Outside { window: name.clone(), has, at, len };
            at.checked_add(len).filter(|end| *end <= has as u64 && len <= MESSAGE_MAX as u64).ok_or_else(outside)
        };
        inside()?;
        let failed = |reason| WindowAccessError::Failed { window: name.clone(), reason };
        let bytes = match access {
            WindowAccess::Read { .. } => {
                let mut bytes = vec![0; len as usize];
                window.read(at as usize, &mut bytes).map_err(failed)?;
                bytes.into()
            }
            WindowAccess::Write { bytes, .. } => {
                window.write(at as usize, bytes).map_err(failed)?;
                Bytes::new()
            }
        };
        // The window may have shrunk since the check.
        inside().map(|_| bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Window that shrinks during a read.
    #[derive(Debug)]
    struct Going(AtomicBool);

    impl MemoryWindow for Going {
        fn len(&self) -> usize {
            if self.0.load(Ordering::Acquire) { 0 } else { 8 }
        }

        fn read(&self, _: usize, _: &mut [u8]) -> Result<(), WindowFailure> {
            self.0.store(true, Ordering::Release);
            Ok(())
        }

        fn write(&self, _: usize, _: &[u8]) -> Result<(), WindowFailure> {
            Err(WindowFailure("read-only".into()))
        }
    }

    #[test]
    fn failed_or_shrinking_window_is_reported() {
        let windows = Windows([("v".into(), Arc::new(Going(AtomicBool::new(false))) as Arc<dyn MemoryWindow>)].into());
        let access = WindowAccess::Write { window: "v".into(), at: 0, bytes: Bytes::from_static(b"x") };
        let failed = windows.access(&access).expect_err("window cannot be written").to_string();
        assert_eq!(failed, "access to window `v` failed: read-only");
        let access = WindowAccess::Read { window: "v".into(), at: 0, len: 8 };
        let refused = windows.access(&access).expect_err("window is gone").to_string();
        assert_eq!(refused, "access to 8 bytes at 0 exceeds window `v` of 0 bytes");
    }

    #[test]
    fn access_outside_window_is_refused() {
        let windows = Windows([("v".into(), Arc::new(HostWindow::new([0; 8])) as Arc<dyn MemoryWindow>)].into());
        let write = |at, bytes| windows.access(&WindowAccess::Write { window: "v".into(), at, bytes });
        let read = |window: &str, at, len| windows.access(&WindowAccess::Read { window: window.into(), at, len });
        assert_eq!(write(5, Bytes::from_static(b"abc")), Ok(Bytes::new()));
        assert_eq!(read("v", 4, 4), Ok(Bytes::from_static(b"\0abc")));
        for (at, len) in [(6, 3), (9, 0), (u64::MAX, 1), (0, u64::MAX)] {
            assert!(matches!(read("v", at, len), Err(WindowAccessError::Outside { .. })), "{at} {len}");
        }
        assert!(matches!(write(8, Bytes::from_static(b"x")), Err(WindowAccessError::Outside { .. })));
        assert_eq!(read("w", 0, 0).expect_err("none").to_string(), "no memory is registered as `w`");
    }
}
