//! Functions in the kernel do what the interpreter does: random programs, random packets, also cut short ones.
//!
//! Needs root; `PATHCALL_ROOT_TESTS=1` makes its lack a failure. `CASES` says how many programs.

mod anywhere;
mod differ;
mod floats;
mod held;
mod live;
mod loops;
mod planted;
mod root;
mod split;

use pathcall_xdp::function::Error;

/// What was loaded; nothing, said aloud, where that is not permitted.
fn permitted<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Err(Error::Kernel(pathcall_xdp::Error::Permission)) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: {}", pathcall_xdp::Error::Permission);
            None
        }
        result => Some(result.unwrap_or_else(|error| panic!("{error}"))),
    }
}
