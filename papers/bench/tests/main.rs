//! Tests of the command `pathcall-bench`, and of the commands in the documentation.

mod pages;
mod quick;
