//! Gate for calls of C functions: closed when the builder or context that they are registered with is freed.

use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::Error;

/// Gate that permits calls until it is closed; closing waits for the calls in progress. A builder and its context share
/// one gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallGate {
    closed: Arc<RwLock<bool>>,
}

thread_local! {
    /// Addresses of the gates under which this thread is executing a call.
    static ENTERED_GATES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl CallGate {
    /// Executes the call; `None` if the gate is closed.
    pub(crate) fn call_if_open<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        if self.is_entered() {
            // Nested call, e.g. to the clock when a function frees an event: the outer call keeps the gate open.
            return Some(call());
        }
        let closed = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return None;
        }
        ENTERED_GATES.with_borrow_mut(|entered| entered.push(self.address()));
        let result = call();
        ENTERED_GATES.with_borrow_mut(Vec::pop);
        Some(result)
    }

    /// True if calls are still permitted.
    pub(crate) fn is_open(&self) -> bool {
        self.is_entered() || !*self.closed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the gate and waits for the calls in progress.
    ///
    /// # Errors
    /// This thread is executing a call itself, and would wait for its own end.
    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.is_entered() {
            return Err(Error::invalid("a registered function cannot free its own context or builder"));
        }
        *self.closed.write().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(())
    }

    fn is_entered(&self) -> bool {
        ENTERED_GATES.with_borrow(|entered| entered.contains(&self.address()))
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.closed).addr()
    }
}
