//! Locks of this caller in the element: which acquiring holds which.
//!
//! A lock that the server says is in the element is taken there, one frame each, and given back
//! under the same tag. When the epoch ends, the holder claims at the server what it held.

use std::collections::BTreeMap;

use super::super::super::{Key, Operation};
use super::super::CallId;
use super::book::KeyPlace;
use super::call::{Call, Work};
use super::{KeyedCalls, OWN_CALLS};
use pathcall_wire::Target;

#[derive(Default)]
pub(super) struct Locks {
    /// Locks held in the element: row and tag.
    held: BTreeMap<Key, (u32, u32)>,
    tags: u32,
    /// Claims that the server has not answered: nothing else is sent before, or a release could
    /// overtake the claim of its lock.
    claims: usize,
}

impl Locks {
    /// Takes a held lock out, to be given back.
    pub(super) fn give_back(&mut self, key: &Key) -> Option<(u32, u32)> {
        self.held.remove(key)
    }

    /// The element has answered a frame of a lock.
    pub(super) fn answered(&mut self, call: &mut Call, index: usize, denied: bool) {
        if !matches!(call.work, Work::Count { .. }) {
            return;
        }
        let (i, row) = call.lock_of(index);
        if denied {
            call.denied.push(i);
        } else {
            call.granted.push(i);
            self.held.insert(call.keys[i as usize].clone(), (row, call.frames[index].tag));
        }
    }

    pub(super) fn are_claimed(&self) -> bool {
        self.claims > 0
    }

    /// The server knows of the locks of a claim.
    pub(super) fn claimed(&mut self, call: &Call) {
        self.claims -= usize::from(call.claim);
    }
}

impl KeyedCalls {
    /// Sends for the locks at the head of the line: one in the element, or a frame to the server.
    pub(super) fn next_locks(&mut self, call: &mut Call, by_element: bool) {
        let place = |i: &u32| match self.book.find(&call.keys[*i as usize]) {
            Some(KeyPlace::Mapped { row, .. }) if by_element && !call.claim => Some(row),
            _ => None,
        };
        let Some(first) = call.line.first() else { return };
        if let Some(row) = place(first) {
            let i = call.line.remove(0);
            self.locks.tags = self.locks.tags.wrapping_add(1).max(1);
            call.push_lock(i, row, self.locks.tags);
        } else {
            let whole = call.line.iter().take_while(|i| place(i).is_none()).count();
            call.push_next_locks(whole);
        }
    }

    /// The epoch has ended: tells the server which locks are held.
    pub(super) fn claim(&mut self) {
        let keys: Vec<Key> = std::mem::take(&mut self.locks.held).into_keys().collect();
        if keys.is_empty() {
            return;
        }
        let mut call = Call::new(Operation::Count { keys, threshold: 1, to: Target::Src });
        (call.claim, call.detached) = (true, true);
        self.own += 1;
        self.locks.claims += 1;
        let id = CallId(OWN_CALLS | self.own);
        self.kept.repeat(id);
        // All at once: they are held, so there is no order to keep.
        let all = call.in_key_order();
        call.push_whole(&all);
        self.ready.push_front(id);
        self.calls.insert(id, call);
    }
}
