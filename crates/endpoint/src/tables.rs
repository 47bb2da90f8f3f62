//! Tables that frames and calls look things up in, by the time that a look takes.

use std::collections::HashMap;

use foldhash::fast::{FixedState, RandomState};

/// Anything by numbers that this process, or the controller, has given out: nobody gains from collisions.
pub(crate) type ByNumber<K, V> = HashMap<K, V, FixedState>;

/// Anything by what strangers may choose: the hash has a seed that they do not know. One that holds against those who
/// watch for longer would cost more than the rest of a look.
pub(crate) type ByName<K, V> = HashMap<K, V, RandomState>;
