//! All-reduce of float32 sums: ranks of one host share memory, hosts exchange parts over a ring of flows or through
//! *map*.
//!
//! ```text
//! rank ─┐                                                     ┌─▶ rank
//! rank ─┴─ shared memory ─▶ leader ══ other hosts' leaders ══ leader ─┴─▶ rank
//!          parts: processor,          ring: processor or device adds up parts
//!          device of the leader       map: fixed-point sums in the element
//! ```
//!
//! [`member`] is one rank. The ranks of a host meet by the name of their group, and rank 0 leads. Within a host, ranks
//! claim parts of the values; the processor of the claiming rank adds up a part, or the device of the leader. Between
//! hosts, [`ring`] passes parts around; the processor or the device of the receiving host adds each part, whichever
//! finishes sooner (*place*). With [`sums`], an element or a server adds the parts (*map*).
//!
//! **Bit-identical results.** Each value is added up once, in one order: the order of ranks, then the order of the
//! ring. Then it is copied. The kernel ([`add`]) rounds each addition as the processor does. So all ranks of all hosts
//! have the same bits in every run, whichever device adds a part. Through *map*, the sums of each host are rounded to
//! six decimals (`proto/*.nf`) and added as integers. Again all ranks have the same bits; the result differs from the
//! exact sum by at most half a millionth per host, plus float32 rounding.

pub mod add;
pub mod member;
pub mod ring;
pub mod run;
pub mod sums;

/// Application file without times; the times are profiled.
pub const APPLICATION: (&str, &str) = ("allreduce.yaml", include_str!("../allreduce.yaml"));

/// Stubs of the service for sums through *map*.
pub mod pb {
    #![allow(missing_docs, reason = "generated")]
    pathcall::include_proto!("sums");
}
