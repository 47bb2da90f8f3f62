//! All-reduce of float32 sums: ranks of a host over memory that they share, hosts over a ring of flows or through *map*.
//!
//! ```text
//! rank ─┐                                                     ┌─▶ rank
//! rank ─┴─ shared memory ─▶ leader ══ other hosts' leaders ══ leader ─┴─▶ rank
//!          parts: processor,          ring: parts are added by processor or device
//!          device of the leader       map: fixed-point sums in the element
//! ```
//!
//! [`member`] is one rank: its host's ranks meet by name, one of them leads. In a host parts of all ranks' values are
//! claimed, and added up by the processor of whoever claims them; the leader's on its device, if it has one. Between hosts
//! [`ring`] sends parts around, each added by the processor or by the device of the host where it comes to, whichever is
//! sooner (*place*); [`sums`] has an element, or a server, add them up (*map*).
//!
//! **The same bits everywhere.** A value is added up in one place, in one order, which is that of ranks and then that of
//! the ring; then it is copied. The kernel ([`add`]) rounds each addition as the processor does. So all ranks of all hosts
//! have the same, in every run, whichever device did which part. Through *map*, each host's sums are rounded to six digits
//! behind the point (`proto/*.nf`), and added up as integers: again all have the same, and it differs from the exact sum
//! by half a millionth for each host at most, and by float32's own rounding.

pub mod add;
pub mod member;
pub mod ring;
pub mod run;
pub mod sums;

/// The application's own file: its times are profiled.
pub const APPLICATION: (&str, &str) = ("allreduce.yaml", include_str!("../allreduce.yaml"));

/// Stubs of the service through which hosts add up by *map*.
pub mod pb {
    #![allow(missing_docs, reason = "generated")]
    pathcall::include_proto!("sums");
}
