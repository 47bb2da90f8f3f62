//! Whether functions of C may still be called: until what they were registered with is freed.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::Error;

/// Lets calls through until it is shut, which waits for those that are inside. A builder has one, and the context that
/// comes of it the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    shut: Arc<RwLock<bool>>,
}

thread_local! {
    /// The gates that this thread is inside, by their addresses.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Gate {
    /// Calls; none when it is shut.
    pub(crate) fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        if self.is_inside() {
            // As when a function frees an event, and a clock is asked: nobody shuts it as long as that runs.
            return Some(call());
        }
        let shut = self.shut.read().unwrap_or_else(PoisonError::into_inner);
        if *shut {
            return None;
        }
        INSIDE.with_borrow_mut(|inside| inside.push(self.address()));
        let result = call();
        INSIDE.with_borrow_mut(Vec::pop);
        Some(result)
    }

    /// Whether calls still get through.
    pub(crate) fn is_open(&self) -> bool {
        self.is_inside() || !*self.shut.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets nobody through any more, and waits for those that are inside.
    ///
    /// # Errors
    /// This thread is: it would wait for itself.
    pub(crate) fn shut(&self) -> Result<(), Error> {
        if self.is_inside() {
            return Err(Error::invalid("a function that was registered with it can't free it"));
        }
        *self.shut.write().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(())
    }

    fn is_inside(&self) -> bool {
        INSIDE.with_borrow(|inside| inside.contains(&self.address()))
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.shut).addr()
    }
}
