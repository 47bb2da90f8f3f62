//! Buffer for the trace lines of one part.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// Shared buffer of the bytes that were written and not taken yet.
#[derive(Debug, Clone, Default)]
pub(super) struct TraceBuffer(Rc<RefCell<Vec<u8>>>);

impl TraceBuffer {
    /// Takes the text that was written.
    pub(super) fn take(&self) -> String {
        String::from_utf8_lossy(&self.0.take()).into_owned()
    }
}

impl Write for TraceBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends the lines of one part to the trace, each with the part's name in front.
pub(super) fn append_lines(text: &mut String, part: &str, lines: &str) {
    for line in lines.lines() {
        text.push_str(&format!("{part:<8} {line}\n"));
    }
}
