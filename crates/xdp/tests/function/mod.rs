//! Tests of functions in the kernel, compared with the interpreter: random programs and packets, also truncated ones.
//!
//! Needs root; with `PATHCALL_ROOT_TESTS=1` missing permission is a failure. `CASES` is the number of programs.

mod differ;
mod equivalence;
mod fallback;
mod floats;
mod live;
mod loops;
mod planted;
mod root;
mod split;

use pathcall_xdp::function::Error;

/// Result of a load; `None`, with a printed message, if it is not permitted.
fn permitted<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::Kernel(pathcall_xdp::Error::Permission)) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {}", pathcall_xdp::Error::Permission);
            None
        }
        result => Some(result.unwrap_or_else(|error| panic!("{error}"))),
    }
}
