//! The demo, and each of its applications, as a user runs them.

mod console;
mod demo;
mod kv;
mod lock;
mod lookup;
mod monitor;
mod photos;
mod plot;
mod proxy;
mod rays;
mod training;
mod vote;
mod wordcount;
mod wordcount_resume;
