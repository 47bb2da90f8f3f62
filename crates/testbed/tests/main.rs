//! Testbeds: real beds, their queues, and the command that builds them. They need root.

mod beds;
mod command;
mod queues;
