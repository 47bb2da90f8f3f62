//! Compiler driver: compiles C to an object for the kernel.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use super::Error;

/// Compilers in order of preference; `CLANG` names another.
const COMPILERS: [&str; 5] = ["clang-19", "clang", "clang-18", "clang-17", "clang-16"];

/// Compiles a file for the kernel.
///
/// # Errors
/// [`Error::NoCompiler`], [`Error::Compiler`], or errors of the system.
pub fn compile(text: &str) -> Result<Vec<u8>, Error> {
    let compiler = compiler()?;
    let system = |doing| move |source| Error::System { doing, source };
    // Debian has a separate directory for the headers of each architecture.
    let machine = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    let mut child = Command::new(&compiler)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wno-unused", "-Wno-parentheses", &machine])
        .args(["-x", "c", "-c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(system("starting the compiler"))?;
    // The compiler reads its whole input before it writes.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let done = child.wait_with_output().map_err(system("waiting for the compiler"))?;
    if !done.status.success() {
        let message = String::from_utf8_lossy(&done.stderr).into_owned();
        let first = message.lines().find(|line| line.contains("error")).or(message.lines().next());
        return Err(Error::Compiler { compiler, message: first.unwrap_or("no message").to_owned() });
    }
    written.map_err(system("sending the program to the compiler"))?;
    Ok(done.stdout)
}

/// First compiler that runs.
fn compiler() -> Result<String, Error> {
    if let Ok(clang) = env::var("CLANG") {
        return Ok(clang);
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = COMPILERS.into_iter().find(runs);
    found.map(str::to_owned).ok_or_else(|| Error::NoCompiler { tried: COMPILERS.join(", ") })
}
