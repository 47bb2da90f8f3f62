//! `netclone-fig11`: reads from Redis, GETs and SCANs (NetClone Fig. 11): see [`stores`].

use kv_stores::StoreKind;

use crate::harness::{Figure, Kind};
use crate::netclone::stores;

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig11",
    about: "Redis behind stubs and the element: GETs and SCANs, with waits and raw",
    kind: Kind::Measured,
    run: |bench| stores::figure(bench, StoreKind::Redis, WORDS),
};

const WORDS: &str = "The paper (§5.5, Fig. 11): \"The performance gap is the biggest at low loads, and the gap becomes small as throughput grows. C-Clone shows similar tail \
    latency to NetClone, but its throughput is limited to half of NetClone. […] In the Redis experiment, NetClone is better than the \
    baseline by up to 22.59× and 1.77× for 99%-GET,1%-SCAN and 90%-GET,10%-SCAN, respectively.\"";
