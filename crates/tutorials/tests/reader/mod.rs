//! Reader of tutorials: creates the files that a page shows, then runs its commands in order.
//!
//! ```text
//! docs/tutorials/NAME.md ─► page ─┬─ files ──► the same as in examples/, which the workspace builds
//!                                 └─ steps ──► shell ─► each succeeds, and prints what the page shows
//! ```
//!
//! The info string after a block's fence gives the kind of the block:
//!
//!
//! | fence | meaning |
//! |---|---|
//! | `rust src/main.rs`, `toml Cargo.toml`, … | a whole file |
//! | `sh` | commands; one with `# fails` after it has to fail, all others must succeed |
//! | `text` | output of the commands before: these lines, in this order, possibly among others; `…` matches anything |
//! | `text about` | the same, but a number matches any number, and zero only zero |
//!
//! A command that ends in `&` continues in the background; the lines of the next `text` block are awaited.

pub mod page;
mod shell;

use std::path::{Path, PathBuf};
use std::process::Command;

use page::{Block, Page};
use shell::Shell;

/// Environment in which a page's commands run.
#[derive(Debug, Clone, Default)]
#[must_use = "follow a page"]
pub struct TutorialReader {
    example: Option<String>,
    program: Option<String>,
    beside: Vec<String>,
    shared_network: bool,
    variables: Vec<(String, String)>,
}

impl TutorialReader {
    /// Reader with the command `pathcall` and a separate network.
    pub fn new() -> Self {
        Self::default()
    }

    /// Compares the page's files with `examples/NAME`.
    pub fn example(mut self, name: &str) -> Self {
        self.example = Some(name.to_owned());
        self
    }

    /// Program that `cargo build` makes of the page's files, which is built already.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.to_owned());
        self
    }

    /// Adds a program of the workspace.
    pub fn beside(mut self, name: &str) -> Self {
        self.beside.push(name.to_owned());
        self
    }

    /// Uses this machine's network, for pages that build networks.
    pub fn shared_network(mut self) -> Self {
        self.shared_network = true;
        self
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Follows the page of this name from top to bottom.
    ///
    /// # Panics
    /// Panics if its files differ from the example's, or if a command behaves differently from the page.
    pub fn follow(self, name: &str) {
        let page = Page::read(&repository().join("docs/tutorials").join(format!("{name}.md")));
        if let Some(example) = &self.example {
            let differ = page.differences(&repository().join("examples").join(example));
            assert!(differ.is_empty(), "{name}.md and the files in examples/{example} differ:\n{}", differ.join("\n"));
        }
        let Some(pathcall) = command() else {
            return skipped(name, "there is no target/debug/pathcall: cargo build -p pathcall-cli");
        };

        let scratch = tempfile::tempdir().expect("a folder");
        let home = scratch.path().join(name);
        let bin = scratch.path().join("bin");
        let target = home.join("target/debug");
        for folder in [&home, &bin, &target] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        link(&pathcall, &bin.join("pathcall"));
        link(&repository().canonicalize().expect("the clone"), &scratch.path().join("pathcall"));
        for program in &self.beside {
            let built = pathcall.with_file_name(program);
            if !built.is_file() {
                return skipped(name, &format!("there is no target/debug/{program}: cargo build -p {program}"));
            }
            link(&built, &bin.join(program));
        }
        if let Some(program) = &self.program {
            let built = pathcall.with_file_name(program);
            if !built.is_file() {
                return skipped(name, &format!("there is no target/debug/{program}: cargo build -p {program}"));
            }
            link(&built, &target.join(program));
        }
        cargo(&bin.join("cargo"));

        let mut shell = Shell::open(&home, &bin, self.shared_network, &self.variables);
        let mut ran = 0;
        for block in &page.blocks {
            match block {
                Block::File { name: file, text } => write(&home.join(file), text),
                Block::Commands(commands) => {
                    shell.begin();
                    for command in commands {
                        shell.run(&format!("{name}.md: {command}"), command);
                        ran += 1;
                    }
                }
                Block::Prints { lines, about } => shell.expect(name, lines, *about),
                Block::Other => {}
            }
        }
        assert!(ran > 0, "{name}.md shows no commands");
        shell.close();
    }
}

/// Prints the reason for which a page was not followed.
///
/// # Panics
/// Panics where no test may be skipped.
pub fn skipped(name: &str, why: &str) {
    assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{name}.md can't be followed: {why}");
    println!("{name}.md is not followed: {why}");
}

/// Path of the command that was built with this test.
#[must_use]
pub fn command() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("its own name");
    // target/debug/deps/test-…
    let built = test.parent().and_then(Path::parent).expect("a build's folder").join("pathcall");
    built.is_file().then_some(built)
}

/// True if the command can attach programs to interfaces.
///
/// # Panics
/// Panics if the command does not start.
#[must_use]
pub fn has_xdp(command: &Path) -> bool {
    let help = Command::new(command).args(["element", "--help"]).output().expect("the command starts");
    String::from_utf8_lossy(&help.stdout).contains("--xdp")
}

/// Path of the repository that this test was built from.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn link(from: &Path, to: &Path) {
    std::os::unix::fs::symlink(from, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// Replaces cargo by a script: its output exists already, built from the same files.
fn cargo(at: &Path) {
    use std::os::unix::fs::PermissionsExt;
    write(at, "#!/bin/sh\n[ \"$*\" = build ] && [ -e Cargo.toml ]\n");
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).expect("a file of ours");
}

fn write(to: &Path, text: &str) {
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    std::fs::write(to, text).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}
