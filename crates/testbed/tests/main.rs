//! Tests of testbeds, their queues, and the command. Need root.

mod command;
mod queues;
mod testbeds;
