//! Tests of the protocol in a simulated network ([`safety`]), one by hand ([`restart`]), and of whole
//! processes ([`processes`]).

mod counting;
mod history;
mod processes;
mod restart;
mod safety;
mod simulator;
