//! How long a flow waits.

use std::time::Duration;

/// Bounds of a flow's timers, and whether it heeds congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Shortest retransmission time-out.
    pub rto_min: Duration,
    /// Retransmission time-out before anything was measured.
    pub rto_initial: Duration,
    /// Longest retransmission time-out.
    pub rto_max: Duration,
    /// First and longest pause before asking again about an item that is held.
    pub probe: (Duration, Duration),
    /// When an item was not answered for so long, its road is in doubt.
    pub silent: Duration,
    /// An item that nobody answered for so long is given up.
    pub give_up: Duration,
    /// Whether what is lost is found before its time-out (RFC 8985): what one sent later has overtaken for a quarter
    /// of a round trip; and by a probe, when nothing was acknowledged for about two round trips, and at least for
    /// this time. For receivers that acknowledge all at once. *map*'s hold answers back until they know more.
    pub early: Option<Duration>,
    /// Whether the window follows congestion (NetRPC §5.1). Without, it is always `w_max`: to show what that is
    /// good for (NetRPC Fig. 9).
    pub congestion_control: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            rto_min: Duration::from_millis(10),
            rto_initial: Duration::from_millis(50),
            rto_max: Duration::from_millis(500),
            probe: (Duration::from_millis(40), Duration::from_millis(640)),
            silent: Duration::from_millis(1500),
            give_up: Duration::from_secs(5),
            early: None,
            congestion_control: true,
        }
    }
}
