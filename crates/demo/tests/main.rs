//! Tests of the demo and of its applications.

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
