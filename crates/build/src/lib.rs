//! The build half of Pathcall: from `.proto` files and the NetFilters they name to stubs and a
//! manifest. A user's `build.rs` is
//!
//! ```no_run
//! fn main() -> Result<(), pathcall_build::Error> {
//!     pathcall_build::compile(&["proto/training.proto"], &["proto"])
//! }
//! ```
//!
//! On the way, in the order of the modules: `load` compiles the `.proto` files without `protoc`;
//! [`filter`] reads the filters that their methods name; [`resolve`] holds the two against each
//! other and finds what each method means; `generate` writes it down. The stubs come from tonic's
//! own generator, unchanged: `OUT_DIR/<package>.rs` is what it would be without us, but for the
//! typed fields, which are those of [`pathcall_proto::types`], as is the codec. Beside it lie
//! `OUT_DIR/<package>.pathcall.rs`, which declares `pub static PATHCALL`, a
//! [`Manifest`](pathcall_proto::manifest::Manifest), and the descriptors it includes.
//!
//! [`check`] does all but the writing, for the command `pathcall check`. Both report every mistake
//! they find, each with its place ([`Diagnostic`]). Without the feature `stubs`, which is on by default, there is only
//! [`check`], and none of tonic's generator is built.

#![warn(missing_docs)]

use std::fmt;
use std::path::{Path, PathBuf};

mod cloned;
mod delegated;
pub mod diagnostic;
pub mod filter;
#[cfg(feature = "stubs")]
mod generate;
mod load;
mod placed;
pub mod resolve;
#[cfg(feature = "stubs")]
mod stubs;

pub use cloned::Cloned;
pub use delegated::Delegated;
pub use diagnostic::{Diagnostic, Location, Severity};
pub use placed::Placed;
pub use resolve::Method;
use resolve::Resolved;
#[cfg(feature = "stubs")]
pub use stubs::{Builder, Error, compile, configure};
#[cfg(feature = "stubs")]
pub use tonic_prost_build;

/// What [`check`] found in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The methods that name a filter, by path.
    pub methods: Vec<Method>,
    /// The methods that servers may pass on, by path.
    pub delegated: Vec<Delegated>,
    /// The methods that a pool of servers answers, by path.
    pub cloned: Vec<Cloned>,
    /// The methods that a host's accelerator may answer, by path.
    pub placed: Vec<Placed>,
    /// What has no effect.
    pub warnings: Vec<Diagnostic>,
}

/// One line per method and per warning.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "{warning}")?;
        }
        let Self { methods, delegated, cloned, placed, .. } = self;
        if methods.is_empty() && delegated.is_empty() && cloned.is_empty() && placed.is_empty() {
            writeln!(f, "no method names a filter")?;
        }
        methods.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        delegated.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        cloned.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        placed.iter().try_for_each(|method| writeln!(f, "{method}"))
    }
}

/// Checks a `.proto` and its filters, and writes nothing. Imports are looked for beside it.
///
/// # Errors
/// Everything that is wrong, in the order of the methods.
pub fn check(proto: impl AsRef<Path>) -> Result<Report, Vec<Diagnostic>> {
    let proto = proto.as_ref();
    // The parent of `app.proto` is the empty path.
    let beside = proto.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    check_all(&[proto], &[beside])
}

/// Checks `.proto` files whose imports are in `includes`.
///
/// # Errors
/// As [`check`].
pub fn check_all(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<Report, Vec<Diagnostic>> {
    let loaded = load::load(&owned(protos), &owned(includes)).map_err(|problem| vec![*problem])?;
    let resolved = resolve::resolve(&loaded);
    if resolved.has_errors() {
        return Err(resolved.problems);
    }
    let Resolved { methods, delegated, cloned, placed, problems: warnings, .. } = resolved;
    Ok(Report { methods, delegated, cloned, placed, warnings })
}

fn owned(paths: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    paths.iter().map(|path| path.as_ref().to_path_buf()).collect()
}
