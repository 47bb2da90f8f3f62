//! Options of a call: how it is steered, and what it may cost.

use std::time::Duration;

/// Which server gets a call that is not cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// One at random.
    #[default]
    Random,
    /// The shorter queue of two at random: the element knows (RackSched, NetClone §3.7).
    Shortest,
    /// One after the other, in the order of their SIDs.
    RoundRobin,
}

/// Sends a call to another server when it takes long, with gRPC's names for it (A6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hedge {
    /// Time after which the call goes to another server, and again after each (A6: `hedgingDelay`).
    pub delay: Duration,
    /// How often it is sent at most, the first time included (A6: `maxAttempts`).
    pub max_attempts: u8,
}

/// How a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether it may take effect more than once. Otherwise it is sent once, to one server, and never cloned.
    pub idempotent: bool,
    /// Whether the element may clone it.
    pub clone: bool,
    /// Whether the caller itself sends it to two servers at once (C-Clone).
    pub twice: bool,
    /// Where it goes if it is not cloned.
    pub balance: Balance,
    /// Whether it goes by the element although nothing is asked of it.
    pub steered: bool,
    /// Whether it goes to others when it takes long.
    pub hedge: Option<Hedge>,
    /// Whether the other servers are told of the first answer: one that has not begun need not.
    pub cancel: bool,
    /// After how long a server says that it works on it, so that it is not sent again in vain. `None`: after half of
    /// the time after which it would be; zero: never.
    pub patience: Option<Duration>,
    /// Which of the caller's budgets pays for what is sent beyond one request: calls of one kind share one.
    pub purse: u8,
    /// The call fails after this time.
    pub deadline: Duration,
    /// Whether the request begins with the time that is left for it, 8 bytes: µs, at least one. They are written each
    /// time that it is sent.
    pub timed: bool,
}

impl Default for Options {
    /// Steered and cloned by the element; a second to answer.
    fn default() -> Self {
        Self {
            idempotent: true,
            clone: true,
            twice: false,
            balance: Balance::Random,
            steered: false,
            hedge: None,
            cancel: false,
            patience: None,
            purse: 0,
            deadline: Duration::from_secs(1),
            timed: false,
        }
    }
}

/// The share of requests that may be sent beyond one for each call: clones, repeats, hedges.
///
/// A call pays `share` in, an extra request takes one out; what may be cloned is paid for when it is sent, and paid
/// back if its answer says that it was not. At no time were more extra requests sent than
/// `share · calls + burst + per_second · time`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Extra requests for each call.
    pub share: f64,
    /// Extra requests at most at one time, beyond what calls since have paid for.
    pub burst: f64,
    /// Extra requests that time alone pays for, so that few calls on a bad link get there.
    pub per_second: f64,
}

impl Default for Budget {
    /// Every call may be cloned.
    fn default() -> Self {
        Self { share: 1.0, burst: 100.0, per_second: 10.0 }
    }
}
