//! Lines that one part writes, until they are put among those of the others.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// What was written and not taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Rc<RefCell<Vec<u8>>>);

impl Lines {
    /// Takes what was written.
    pub(super) fn take(&self) -> String {
        String::from_utf8_lossy(&self.0.take()).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Puts what a part wrote behind the rest, each line with the part's name.
pub(super) fn put(text: &mut String, part: &str, lines: &str) {
    for line in lines.lines() {
        text.push_str(&format!("{part:<8} {line}\n"));
    }
}
