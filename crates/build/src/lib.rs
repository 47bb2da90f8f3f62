//! Build helper of Pathcall: generates stubs and a manifest from `.proto` files and their NetFilters. A user's
//! `build.rs` is
//!
//! ```no_run
//! fn main() -> Result<(), pathcall_build::Error> {
//!     pathcall_build::compile(&["proto/training.proto"], &["proto"])
//! }
//! ```
//!
//! Modules in order of use: `load` compiles the `.proto` files without `protoc`; [`filter`] parses the filters that
//! their methods name; [`resolve`] checks filters against messages and determines the meaning of each method;
//! `generate` writes the manifest. The stubs come from tonic's generator, unchanged: `OUT_DIR/<package>.rs` differs
//! only in the typed fields, which are those of [`pathcall_proto::types`], and in the codec. Beside it are
//! `OUT_DIR/<package>.pathcall.rs`, which declares `pub static PATHCALL`, a
//! [`Manifest`](pathcall_proto::manifest::Manifest), and the descriptors that it includes.
//!
//! [`check`] does the same without writing files, for the command `pathcall check`. Both report all errors, each with
//! its position ([`BuildDiagnostic`]). [`descriptors`] only compiles the files. Without the default feature `stubs`, only
//! these two are available, and tonic's generator is not built.

#![warn(missing_docs)]

use std::fmt;
use std::path::{Path, PathBuf};

use prost_reflect::DescriptorPool;

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

pub use cloned::ClonedMethod;
pub use delegated::DelegatedMethod;
pub use diagnostic::{BuildDiagnostic, Location, Severity};
pub use load::is_idempotent;
pub use placed::PlacedMethod;
use resolve::Resolution;
pub use resolve::ResolvedMethod;
#[cfg(feature = "stubs")]
pub use stubs::{Builder, Error, compile, configure};
#[cfg(feature = "stubs")]
pub use tonic_prost_build;

/// Result of a successful [`check`].
#[derive(Debug, Clone, PartialEq)]
pub struct CheckReport {
    /// Methods with a filter, by path.
    pub methods: Vec<ResolvedMethod>,
    /// Delegated methods, by path.
    pub delegated: Vec<DelegatedMethod>,
    /// Methods of a pool of servers, by path.
    pub cloned: Vec<ClonedMethod>,
    /// Methods for a host's accelerator, by path.
    pub placed: Vec<PlacedMethod>,
    /// Settings without effect.
    pub warnings: Vec<BuildDiagnostic>,
}

/// One line per method and per warning.
impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "{warning}")?;
        }
        let Self { methods, delegated, cloned, placed, .. } = self;
        if methods.is_empty() && delegated.is_empty() && cloned.is_empty() && placed.is_empty() {
            writeln!(f, "no method has network options")?;
        }
        methods.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        delegated.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        cloned.iter().try_for_each(|method| writeln!(f, "{method}"))?;
        placed.iter().try_for_each(|method| writeln!(f, "{method}"))
    }
}

/// Checks a `.proto` and its filters without writing files. Imports are searched in its folder.
///
/// # Errors
/// Returns all errors, in the order of the methods.
pub fn check(proto: impl AsRef<Path>) -> Result<CheckReport, Vec<BuildDiagnostic>> {
    let proto = proto.as_ref();
    // The parent of `app.proto` is the empty path.
    let beside = proto.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    check_all(&[proto], &[beside])
}

/// Checks `.proto` files with imports in `includes`.
///
/// # Errors
/// As [`check`].
pub fn check_all(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<CheckReport, Vec<BuildDiagnostic>> {
    let loaded = load::load(&owned(protos), &owned(includes)).map_err(|problem| vec![*problem])?;
    let resolved = resolve::resolve(&loaded);
    if resolved.has_errors() {
        return Err(resolved.problems);
    }
    let Resolution { methods, delegated, cloned, placed, problems: warnings, .. } = resolved;
    Ok(CheckReport { methods, delegated, cloned, placed, warnings })
}

/// Descriptors of `.proto` files and of their imports in `includes`, for programs that learn their methods at run time.
///
/// # Errors
/// The first error of the files.
pub fn descriptors(
    protos: &[impl AsRef<Path>],
    includes: &[impl AsRef<Path>],
) -> Result<DescriptorPool, Box<BuildDiagnostic>> {
    Ok(load::compile(&owned(protos), &owned(includes))?.descriptor_pool())
}

fn owned(paths: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    paths.iter().map(|path| path.as_ref().to_path_buf()).collect()
}
