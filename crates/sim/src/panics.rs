//! Panics of code under test, as text: with their place, and without a page on the terminal each.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// `Some` while this thread catches panics: what the last one said.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`; what it says when it panics, and where.
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
    // What `work` changed is looked at after a panic, but not used any further.
    let done = catch_unwind(AssertUnwindSafe(work));
    let text = CAUGHT.take().unwrap_or_default();
    done.map_err(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        assert_eq!(catch(|| 3), Ok(3));
        let said = catch(|| panic!("no room")).expect_err("it panics");
        assert!(said.contains("no room") && said.contains("panics.rs"), "{said}");
    }
}
