//! Hash map types for lookups by frames and calls.

use std::collections::HashMap;

use foldhash::fast::{FixedState, RandomState};

/// Hash map with a fixed hash, for keys that this process or the controller assigns. No attacker can cause collisions.
pub type FixedHashMap<K, V> = HashMap<K, V, FixedState>;

/// Hash map with a random seed, for keys that callers choose. A hash that resists an attacker who measures lookup times
/// would cost more than the lookup.
pub type SeededHashMap<K, V> = HashMap<K, V, RandomState>;
