//! Follows a tutorial as its reader does: the files that the page shows, then its commands, one after the other.
//!
//! ```text
//! docs/tutorials/NAME.md ─► page ─┬─ files ──► the same as in examples/, which the workspace builds
//!                                 └─ steps ──► shell ─► each succeeds, and prints what the page shows
//! ```
//!
//! What the blocks of a page are is said by what follows their fence:
//!
//! | fence | is |
//! |---|---|
//! | `rust src/main.rs`, `toml Cargo.toml`, … | a file, whole |
//! | `sh` | commands; one with `# fails` behind it has to fail, all others must not |
//! | `text` | what the commands before print: these lines, in this order, maybe among others; `…` is anything |
//! | `text about` | the same, but a number stands for any other, and zero for zero |
//!
//! A command that ends in `&` goes on; the lines that follow in a `text` block are awaited.

pub mod page;
mod shell;

use std::path::{Path, PathBuf};
use std::process::Command;

use page::{Block, Page};
use shell::Shell;

/// Where a page's commands run, and with which programs.
#[derive(Debug, Clone, Default)]
#[must_use = "follow a page"]
pub struct Reader {
    example: Option<String>,
    program: Option<String>,
    beside: Vec<String>,
    shared_network: bool,
    variables: Vec<(String, String)>,
}

impl Reader {
    /// Somebody with the command `pathcall` and a network of their own.
    pub fn new() -> Self {
        Self::default()
    }

    /// The page's files are those of `examples/NAME`.
    pub fn example(mut self, name: &str) -> Self {
        self.example = Some(name.to_owned());
        self
    }

    /// What `cargo build` makes of the page's files: a program of this name, which is built already.
    pub fn program(mut self, name: &str) -> Self {
        self.program = Some(name.to_owned());
        self
    }

    /// A program of the clone's beside the command.
    pub fn beside(mut self, name: &str) -> Self {
        self.beside.push(name.to_owned());
        self
    }

    /// This machine's network, for pages that build networks.
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
    /// When its files are not those of its folder, or a command does something else than the page says.
    pub fn follow(self, name: &str) {
        let page = Page::read(&clone().join("docs/tutorials").join(format!("{name}.md")));
        if let Some(example) = &self.example {
            let differ = page.differences(&clone().join("examples").join(example));
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
        link(&clone().canonicalize().expect("the clone"), &scratch.path().join("pathcall"));
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

/// Says why a page was not followed.
///
/// # Panics
/// Where nothing may be skipped.
pub fn skipped(name: &str, why: &str) {
    assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "{name}.md can't be followed: {why}");
    println!("{name}.md is not followed: {why}");
}

/// The command, as it was built beside this test.
#[must_use]
pub fn command() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("its own name");
    // target/debug/deps/test-…
    let built = test.parent().and_then(Path::parent).expect("a build's folder").join("pathcall");
    built.is_file().then_some(built)
}

/// Whether the command can attach programs to interfaces.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn has_xdp(command: &Path) -> bool {
    let help = Command::new(command).args(["element", "--help"]).output().expect("the command starts");
    String::from_utf8_lossy(&help.stdout).contains("--xdp")
}

/// The clone that this was built from.
#[must_use]
pub fn clone() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn link(from: &Path, to: &Path) {
    std::os::unix::fs::symlink(from, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// In place of cargo: what it would build is there, from the same files.
fn cargo(at: &Path) {
    use std::os::unix::fs::PermissionsExt;
    write(at, "#!/bin/sh\n[ \"$*\" = build ] && [ -e Cargo.toml ]\n");
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o755)).expect("a file of ours");
}

fn write(to: &Path, text: &str) {
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    std::fs::write(to, text).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}
