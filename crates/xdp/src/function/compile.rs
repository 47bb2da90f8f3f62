//! The compiler: C in, an object for the kernel out.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use super::Error;

/// Compilers that are tried, the best first; `CLANG` names another.
const COMPILERS: [&str; 5] = ["clang-19", "clang", "clang-18", "clang-17", "clang-16"];

/// Compiles a file for the kernel.
///
/// # Errors
/// [`Error::NoCompiler`], [`Error::Compiler`], or what the system says.
pub fn compile(text: &str) -> Result<Vec<u8>, Error> {
    let compiler = compiler()?;
    let system = |doing| move |source| Error::System { doing, source };
    // Debian keeps the headers of the machine's architecture apart.
    let machine = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    let mut child = Command::new(&compiler)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wno-unused", "-Wno-parentheses", &machine])
        .args(["-x", "c", "-c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(system("starting the compiler"))?;
    // The compiler reads all before it writes.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let done = child.wait_with_output().map_err(system("waiting for the compiler"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let first = said.lines().find(|line| line.contains("error")).or(said.lines().next());
        return Err(Error::Compiler { compiler, said: first.unwrap_or("it says nothing").to_owned() });
    }
    written.map_err(system("handing the program to the compiler"))?;
    Ok(done.stdout)
}

/// The first compiler that runs.
fn compiler() -> Result<String, Error> {
    if let Ok(clang) = env::var("CLANG") {
        return Ok(clang);
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|said| said.status.success());
    let found = COMPILERS.into_iter().find(runs);
    found.map(str::to_owned).ok_or_else(|| Error::NoCompiler { tried: COMPILERS.join(", ") })
}
