//! Detection of the compilers on this machine.

use std::hash::Hasher;
use std::path::{Path, PathBuf};

use super::SandboxKind;

/// Names in order of preference, as Debian has several versions.
const CLANG: [&str; 8] = ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", "clang-13"];
const WASM_LD: [&str; 8] =
    ["wasm-ld", "wasm-ld-19", "wasm-ld-18", "wasm-ld-17", "wasm-ld-16", "wasm-ld-15", "wasm-ld-14", "wasm-ld-13"];
/// Directories in which `wasm-rt.h` may be.
const INCLUDE: [&str; 2] = ["/usr/include", "/usr/local/include"];

/// Missing tools, each with its Debian package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} not found: install {}", .0.iter().map(|(tool, _)| *tool).collect::<Vec<_>>().join(", "), packages(.0))]
pub struct MissingTools(pub Vec<(&'static str, &'static str)>);

fn packages(missing: &[(&str, &str)]) -> String {
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    format!("{} (Debian's names)", packages.join(" "))
}

/// Tools for one kind of sandbox; paths that are not needed are empty.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    /// C compiler of the machine.
    pub cc: PathBuf,
    /// clang, for WebAssembly.
    pub clang: PathBuf,
    /// Linker for WebAssembly.
    pub wasm_ld: PathBuf,
    /// Translator from WebAssembly to C.
    pub wasm2c: PathBuf,
    /// Directory of `wasm-rt.h`.
    pub include: PathBuf,
}

impl Tools {
    /// Finds the tools of a kind of sandbox, or reports the missing ones with their Debian packages.
    pub fn find(kind: SandboxKind) -> Result<Self, MissingTools> {
        let mut missing = Vec::new();
        let mut need = |names: &[&str], tool, package| {
            path_of(names).unwrap_or_else(|| {
                missing.push((tool, package));
                PathBuf::new()
            })
        };
        let mut tools = Self { cc: need(&["cc", "gcc"], "cc", "gcc"), ..Self::default() };
        if kind == SandboxKind::Wasm {
            tools.clang = need(&CLANG, "clang", "clang");
            tools.wasm_ld = need(&WASM_LD, "wasm-ld", "lld");
            tools.wasm2c = need(&["wasm2c"], "wasm2c", "wabt");
            match INCLUDE.iter().map(Path::new).find(|dir| dir.join("wasm-rt.h").exists()) {
                Some(dir) => tools.include = dir.to_owned(),
                None => missing.push(("wasm-rt.h", "wabt")),
            }
        }
        if missing.is_empty() { Ok(tools) } else { Err(MissingTools(missing)) }
    }

    /// Hashes the identity of the tool chain, which changes with an update.
    pub(super) fn identify(&self, hash: &mut impl Hasher) {
        for tool in [&self.cc, &self.clang, &self.wasm_ld, &self.wasm2c] {
            hash.write(tool.as_os_str().as_encoded_bytes());
            if let Ok(about) = std::fs::metadata(tool) {
                hash.write_u64(about.len());
                let age = about.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
                hash.write_u64(age.map_or(0, |age| age.as_secs()));
            }
        }
    }
}

/// First of these programs in `PATH`.
pub(super) fn path_of(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().find_map(|name| dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file()))
}
