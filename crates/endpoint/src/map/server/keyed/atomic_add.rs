//! Atomic addition: all pairs of a call are applied, or none.

use pathcall_wire::pairs::MAX_KEY;

use super::super::super::{CallError, Key, Modify};
use super::KeyedStore;

impl KeyedStore {
    /// Adds all values to the bases of their keys, or none. Returns the bases after the addition if `get`.
    pub(in super::super) fn add_all_or_nothing(
        &mut self,
        pairs: &[(Key, i64)],
        modify: Modify,
        get: bool,
    ) -> Result<Vec<i64>, CallError> {
        let mut values = Vec::with_capacity(pairs.len());
        for (position, (key, value)) in pairs.iter().enumerate() {
            if key.as_bytes().len() > MAX_KEY {
                return Err(CallError::KeyLength { len: key.as_bytes().len() - 1, position });
            }
            let added = modify.apply(*value).ok_or(CallError::Range { value: *value, position, bits: 32 })?;
            let state = self.table.find_or_insert(key.as_bytes()).ok_or(CallError::KeysFull)?;
            state.base.checked_add(added).ok_or(CallError::Overflow { position })?;
            values.push((state.id, added));
        }
        let mut bases = Vec::with_capacity(if get { values.len() } else { 0 });
        for (id, value) in values {
            let state = self.table.state_mut(id);
            // Each key occurs once, and its sum was checked above.
            state.add(value);
            self.changed.note(id);
            if get {
                bases.push(state.base);
            }
        }
        Ok(bases)
    }
}
