//! `netclone-fig12`: reads from memcached, GETs and SCANs (NetClone Fig. 12): see [`stores`].

use kv_stores::StoreKind;

use crate::harness::{Figure, Kind};
use crate::netclone::stores;

pub(crate) const FIGURE: Figure = Figure {
    name: "netclone-fig12",
    about: "memcached behind stubs and the element: GETs and SCANs, with waits and raw",
    kind: Kind::Measured,
    run: |bench| stores::figure(bench, StoreKind::Memcached, WORDS),
};

const WORDS: &str = "The paper (§5.5, Fig. 12): \"The performance gap is the biggest at low loads, and the gap becomes small as throughput grows. C-Clone shows similar tail \
    latency to NetClone, but its throughput is limited to half of NetClone. […] In Memcached, the largest improvement degree \
    is 22.00× and the smallest one is 1.06× for 99%-GET,1%-SCAN. For 90%-GET,10%-SCAN in Memcached, NetClone achieves better \
    tail latency than the baseline by 1.24× on average.\"";
