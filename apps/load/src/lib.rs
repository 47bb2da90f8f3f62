//! Load generator in the style of papers on tail latency, shared by applications and benchmarks.
//!
//! ```text
//! Plan (rate, how long) ─► arrivals (Poisson) ─► a call each, however many are under way ─► Latencies
//!                                                 └─ its key: Zipf, scrambled
//!                                                 └─ its server's time: Service, and Jitter
//! ```
//!
//! [`open`] makes calls at planned times, whether earlier calls were answered or not, and measures from those times on,
//! so that a stalled server shows in all calls that it delays. [`service`] draws service times, [`zipf`] keys, both
//! from [`random`].

pub mod latencies;
pub mod open;
pub mod random;
pub mod service;
pub mod zipf;

pub use latencies::Latencies;
pub use open::{LoadPlan, Run, closed_loop, open_loop};
pub use random::Random;
pub use service::{Jitter, Service};
pub use zipf::Zipf;
