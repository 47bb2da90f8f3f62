//! Child process that is killed with its figure.

use std::process::Child;

/// Child process that is killed on drop.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}
