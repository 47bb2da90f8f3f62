//! Build script: compiles the switch program in `bpf/` for the kernel, if the feature `kernel` is on.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compilers in order of preference; `CLANG` names another.
const COMPILERS: [&str; 5] = ["clang-19", "clang", "clang-18", "clang-17", "clang-16"];

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return;
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    println!("cargo::rerun-if-changed={}", sources.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    let clang = compiler();
    println!("cargo::rustc-env=PATHCALL_XDP_COMPILER={}", version(&clang));
    compile(&clang, &sources.join("switch.bpf.c"), &out.join("switch.bpf.o"), &[]);
    compile(&clang, &sources.join("root.bpf.c"), &out.join("root.bpf.o"), &[]);
    if env::var_os("CARGO_FEATURE_PLANTED").is_some() {
        compile(&clang, &sources.join("switch.bpf.c"), &out.join("planted.bpf.o"), &["-DPLANTED"]);
    }
}

/// First compiler that runs.
fn compiler() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = COMPILERS.into_iter().find(runs);
    found.unwrap_or_else(|| panic!("no clang found: install it (Debian: clang-19), or name it in CLANG")).to_owned()
}

/// Version line of the compiler.
fn version(clang: &str) -> String {
    let text = Command::new(clang).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or(clang).to_owned()
}

fn compile(clang: &str, source: &Path, to: &Path, options: &[&str]) {
    // Debian has a separate directory for the headers of each architecture.
    let machine = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says"));
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]);
    command.args(["-target", "bpf", "-mcpu=v3"]).arg(format!("-I{machine}")).args(options);
    command.arg("-c").arg(source).arg("-o").arg(to);
    let done = command.status().unwrap_or_else(|error| panic!("{clang}: {error}"));
    assert!(done.success(), "{clang} failed; headers: linux-libc-dev, libbpf-dev");
}
