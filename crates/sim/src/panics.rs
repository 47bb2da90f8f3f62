//! Capture of panics of the code under test, as text with the source location and without output on the terminal.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread captures panics: text of the last one.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; a panic becomes an error with its text and location.
pub(crate) fn catch<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let caught = CAUGHT.with_borrow_mut(|caught| caught.as_mut().map(|text| *text = panic.to_string()));
            if caught.is_none() {
                usual(panic);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    // State that `work` changed is only inspected after a panic.
    let done = catch_unwind(AssertUnwindSafe(work));
    let text = CAUGHT.take().unwrap_or_default();
    done.map_err(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caught_panic_has_text_and_location() {
        assert_eq!(catch(|| 3), Ok(3));
        let message = catch(|| panic!("no room")).expect_err("panic is caught");
        assert!(message.contains("no room") && message.contains("panics.rs"), "{message}");
    }
}
