//! Tests of the protocol in a simulated network ([`safety`]), and one by hand ([`restart`]).

mod counting;
mod history;
mod restart;
mod safety;
mod simulator;
