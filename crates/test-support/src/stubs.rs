//! Generated stubs of `rpctest.proto`, `rounds.proto`, `filters.proto` and `shop.proto`.
#![allow(unreachable_pub, missing_docs, clippy::all)]

tonic::include_proto!("rpctest");
include!(concat!(env!("OUT_DIR"), "/rpctest.pathcall.rs"));

pub mod rounds {
    tonic::include_proto!("rounds");
    include!(concat!(env!("OUT_DIR"), "/rounds.pathcall.rs"));
}

pub mod filters {
    tonic::include_proto!("filters");
    include!(concat!(env!("OUT_DIR"), "/filters.pathcall.rs"));
}

pub mod shop {
    tonic::include_proto!("shop");
}
