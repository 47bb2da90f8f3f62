//! Timer settings of a flow.

use std::time::Duration;

/// Timer settings of a flow, and switch of its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowTiming {
    /// Minimum retransmission timeout.
    pub rto_min: Duration,
    /// Retransmission timeout before the first round-trip sample.
    pub rto_initial: Duration,
    /// Maximum retransmission timeout.
    pub rto_max: Duration,
    /// First and maximum pause before a held item is sent again.
    pub probe: (Duration, Duration),
    /// Time without an answer after which the path of an item counts as silent.
    pub silent: Duration,
    /// Time without an answer after which an item is given up.
    pub give_up: Duration,
    /// Early loss detection (RFC 8985): an item is lost a quarter of a round trip after a later item overtook it; and a
    /// probe is sent after about two round trips without an acknowledgement, at least after this time. Only for
    /// receivers that acknowledge each item at once; receivers of *map* delay some answers.
    pub early: Option<Duration>,
    /// Whether the window follows congestion (NetRPC §5.1). Otherwise its size is always `w_max`, for comparison
    /// (NetRPC Fig. 9).
    pub congestion_control: bool,
}

impl Default for FlowTiming {
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
