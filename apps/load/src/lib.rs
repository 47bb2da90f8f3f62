//! Load as papers on tail latency offer it, and what they measure of it; applications and the bench share it.
//!
//! ```text
//! Plan (rate, how long) ─► arrivals (Poisson) ─► a call each, however many are under way ─► Latencies
//!                                                 └─ its key: Zipf, scrambled
//!                                                 └─ its server's time: Service, and Jitter
//! ```
//!
//! [`open`] makes the calls: each at its time, whether others have been answered or not, and measured from that
//! time on, so that a server that stalls is seen by all the calls it keeps waiting. [`service`] draws how long
//! servers take, [`zipf`] which keys are asked for, [`random`] is where all of it comes from.

pub mod latencies;
pub mod open;
pub mod random;
pub mod service;
pub mod zipf;

pub use latencies::Latencies;
pub use open::{Plan, Run, closed_loop, open_loop};
pub use random::Random;
pub use service::{Jitter, Service};
pub use zipf::Zipf;
