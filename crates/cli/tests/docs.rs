//! Tests that run every command shown in the documentation, or name the test that runs it.
//!
//! Tutorials have tests of their own (`crates/tutorials`), because their commands depend on each other.
//!
//! Commands stand in blocks marked `sh` and between backquotes in the text. Cheap commands are run, on a controller and
//! an element of this test where needed, and as root where needed. [`ELSEWHERE`] lists the others with the place that
//! runs them. Any other command fails the test: nobody would notice when it stops working.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pathcall_testbed::{Testbed, list_testbeds, root_tests};

/// Number of simulated runs, in place of a larger or missing number in a command.
const SEEDS: &str = "20";

/// Address of the controller of `pathcall up`.
const CONTROLLER: &str = "http://127.0.0.1:7700";

/// Place that runs a slow make target.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Runner {
    /// `.ci/run` calls it.
    Ci,
    /// `make test` calls it, which `.ci/run` calls.
    Test,
    /// `make test` runs its tests, by this feature.
    Feature(&'static str),
    /// Run by hand only, for this reason; its parts have tests.
    Hand(&'static str),
}

/// Targets that this test does not make.
const ELSEWHERE: [(&str, Runner); 13] = [
    ("demo", Runner::Ci),
    ("lint", Runner::Ci),
    ("test", Runner::Ci),
    ("package", Runner::Ci),
    ("papers", Runner::Ci),
    ("sim", Runner::Test),
    ("mutants", Runner::Feature("pathcall-sim/mutants")),
    ("xdp", Runner::Feature("pathcall-xdp/planted")),
    ("fuzz", Runner::Hand("fuzzes for hours; tests of crates/fuzzing play samples through the same targets")),
    ("bench", Runner::Hand("measures for long, on a machine that does nothing else")),
    ("doc", Runner::Hand("documents all crates, for minutes; clippy looks for what is not documented")),
    ("hostile", Runner::Hand("an hour of what tests/hostile plays in make test")),
    ("soak", Runner::Hand("more of what make sim and make test do")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Tracked pages, by name.
fn pages() -> Vec<(String, String)> {
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "*.md"]).output().expect("git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names");
    names
        .lines()
        .filter(|name| !name.starts_with("docs/tutorials/") || *name == "docs/tutorials/README.md")
        .map(|name| (name.to_owned(), std::fs::read_to_string(root().join(name)).expect("a tracked page")))
        .collect()
}

/// Commands with their page: lines of `sh` blocks, and text between backquotes that begins like a command with
/// arguments.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut commands = Vec::new();
    for (page, text) in pages() {
        let (mut fence, mut prose, mut papers) = (None, String::new(), false);
        let mut push = |command: &str| {
            let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
            if !words.is_empty() {
                commands.push((page.clone(), words));
            }
        };
        for line in text.lines() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = if fence.is_some() { None } else { Some(language.to_owned()) };
                papers = false;
            } else if fence.as_deref() == Some("sh") {
                // Later commands belong to another workspace, whose tests run them (papers/bench/tests/pages.rs).
                papers |= line == "cd papers";
                if !papers {
                    push(line.split(" #").next().unwrap_or_default());
                }
            } else if fence.is_none() {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        assert!(fence.is_none(), "{page}: a block that does not end");
        for quoted in prose.split('`').skip(1).step_by(2) {
            let mut words = quoted.split_whitespace();
            let begins = matches!(words.next(), Some("make" | "pathcall" | "cargo"));
            if begins && words.next().is_some() {
                push(quoted);
            }
        }
    }
    commands
}

#[test]
fn every_documented_command_works() {
    let commands = commands();
    assert!(commands.len() >= 8, "the pages show commands: {commands:?}");
    // Output folder of the commands.
    std::fs::create_dir_all(root().join("target")).expect("a folder");
    let up = Service::start("this test", "up", &[]);
    let _leftovers = Leftovers;
    let mut ran = BTreeSet::new();
    for (page, words) in commands {
        // Pages repeat commands of other pages.
        if !ran.insert(words.clone()) {
            continue;
        }
        let place = format!("{page}: {}", words.join(" "));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            // This build may lack the feature; `make test` has `xdp`.
            ["pathcall", what, ..] if words.contains(&"--xdp") => {
                let test = if what == "program" { "tests/cli.rs" } else { "tests/xdp.rs" };
                let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(test)).expect("a test");
                assert!(
                    text.contains("\"--xdp\"") && text.contains(&format!("\"{what}\"")),
                    "{place}: {test} has no such command"
                );
            }
            ["pathcall", "cert", verb, ..] => has(&place, "crates/cli/tests/certificates.rs", &format!("\"{verb}\"")),
            // These commands also need root, hosts, and the feature `xdp`.
            ["pathcall", "element", ..] if words.contains(&"--function") => {
                has(&place, "crates/cli/tests/live/testbed.rs", "\"--function\"");
            }
            ["pathcall", "function", verb @ ("serve" | "status"), ..] => {
                has(&place, "crates/cli/tests/live/testbed.rs", &format!("\"{verb}\""));
            }
            ["pathcall", "function", verb @ ("add-server" | "remove-server"), ..] => {
                has(&place, "crates/cli/tests/live/mod.rs", &format!("\"{verb}\""));
            }
            ["pathcall", service @ ("up" | "controller" | "element"), ref options @ ..] => {
                Service::start(&place, service, options);
            }
            // Runs until it is stopped, beside services.
            ["pathcall", "pipe", verb @ ("serve" | "front"), ..] => {
                has(&place, "crates/cli/tests/pipe.rs", &format!("\"{verb}\""));
            }
            // The command needs a running program to query.
            ["pathcall", "place", verb @ ("explain" | "status"), ..] => {
                has(&place, "crates/cli/tests/place.rs", &format!("\"{verb}\""));
            }
            // Placeholder for any external program.
            ["pathcall", "NAME"] => has(&place, "crates/cli/src/external.rs", "pathcall-{name}"),
            // Named without arguments.
            ["pathcall", "testbed"] => {
                succeeds(&place, Command::new(crate::PATHCALL).args(["testbed", "--help"]));
            }
            // Runs until it is stopped.
            ["pathcall", "testbed", "capture", ..] => has(&place, "crates/testbed/tests/command.rs", "\"capture\""),
            ["pathcall", "testbed", ref arguments @ ..] => {
                if root_tests(&place) {
                    succeeds(&place, Command::new(crate::PATHCALL).arg("testbed").args(own_names(arguments)));
                }
            }
            ["pathcall", ref arguments @ ..] => {
                let arguments = arguments.iter().enumerate().map(|(at, word)| match *word {
                    // Placeholder for a seed.
                    "N" => "1",
                    // `make sim` runs thousands of seeds in a release build.
                    _ if at > 0 && arguments[at - 1] == "--seeds" => SEEDS,
                    word => word,
                });
                let mut command = Command::new(crate::PATHCALL);
                command.args(arguments).current_dir(root());
                if words[1] == "sim" && !words.iter().any(|word| matches!(*word, "--seed" | "--seeds")) {
                    command.args(["--seeds", SEEDS]);
                }
                if matches!(words[1], "status" | "program") {
                    command.args(["--controller", &up.url]);
                }
                succeeds(&place, &mut command);
            }
            ["make", target, ..] => made(&place, target, &words[1..]),
            // `make test` runs all packages.
            ["cargo", "test", "-p", package] => {
                succeeds(&place, Command::new(env!("CARGO")).args(["pkgid", package]).current_dir(root()));
            }
            ["cargo", "build", "--release", "-p", "pathcall-cli"] => has(&place, "Makefile", "DEMO = -p pathcall-cli "),
            // `make test` builds all packages with all features.
            ["cargo", "build", ref options @ ..] if !options.contains(&"pathcall-place-c") => built(&place, options),
            // The example in C is built and run with the library.
            ["cargo", "build", "--release", "-p", "pathcall-place-c"] => {
                has(&place, "crates/place-c/tests/example.rs", "libpathcall_place_c.so");
            }
            ["cc", ..] => has(&place, "crates/place-c/tests/example.rs", "-lpathcall_place_c"),
            ["LD_LIBRARY_PATH=target/release", "./kvs", ..] => {
                has(&place, "crates/place-c/tests/example.rs", "example/kvs.c");
            }
            ["cargo", "run", ..] => {
                let package = words.iter().position(|word| *word == "-p").map(|at| words[at + 1]);
                let package = package.unwrap_or_else(|| panic!("{place}: no -p"));
                let example = words.iter().position(|word| *word == "--example").map(|at| words[at + 1]);
                if let Some(example) = example {
                    let crates = package.trim_start_matches("pathcall-");
                    let file = root().join(format!("crates/{crates}/examples/{example}.rs"));
                    assert!(file.is_file(), "{place}: there is no {}", file.display());
                }
                let after = words.iter().position(|word| *word == "--").map_or(&[][..], |at| &words[at + 1..]);
                // Replaces the address of `pathcall up` by this test's controller.
                let own = |word: &&str| if *word == CONTROLLER { up.url.clone() } else { (*word).to_owned() };
                run_package(&place, package, &after.iter().map(own).collect::<Vec<_>>());
            }
            _ => panic!("{place}: no test runs this command"),
        }
    }
}

/// Suffix that distinguishes this test's testbeds from those of other tests in this process.
fn own_suffix() -> String {
    format!("d{}", std::process::id())
}

/// Arguments with unique names of testbeds.
fn own_names(arguments: &[&str]) -> Vec<String> {
    let named = |at: usize| at.checked_sub(1).is_some_and(|before| arguments[before] == "--name");
    let own = |(at, word): (usize, &&str)| {
        if named(at) { format!("{word}{}", own_suffix()) } else { (*word).to_owned() }
    };
    arguments.iter().enumerate().map(own).collect()
}

/// Removes testbeds that a failed command has left.
struct Leftovers;

impl Drop for Leftovers {
    fn drop(&mut self) {
        let beds = list_testbeds().unwrap_or_default();
        for name in beds.keys().filter(|name| name.ends_with(&own_suffix())) {
            let down = Testbed::open(name).and_then(Testbed::down);
            eprintln!("{name} was left: {down:?}");
        }
    }
}

/// Checks that the packages of a build command exist, and that `make test` has the requested features.
#[track_caller]
fn built(place: &str, options: &[&str]) {
    let mut package = "";
    for pair in options.windows(2) {
        match *pair {
            ["-p", name] => {
                succeeds(place, Command::new(env!("CARGO")).args(["pkgid", name]).current_dir(root()));
                package = name;
            }
            ["--features", name] if name.contains('/') => has(place, "Makefile", name),
            ["--features", name] => has(place, "Makefile", &format!("{package}/{name}")),
            _ => {}
        }
    }
}

/// Checks that another test runs the command.
#[track_caller]
fn has(place: &str, file: &str, word: &str) {
    let text = std::fs::read_to_string(root().join(file)).expect("a tracked file");
    assert!(text.contains(word), "{place}: {file} does not run it");
}

/// Runs a make target if it is cheap.
fn made(place: &str, target: &str, words: &[&str]) {
    let mut command = Command::new("make");
    command.current_dir(root());
    let Some((_, runner)) = ELSEWHERE.iter().find(|(name, _)| *name == target) else {
        return succeeds(place, command.args(words));
    };
    // A dry run: the target and its dependencies exist.
    succeeds(place, command.arg("-n").args(words));
    let read = |file: &str| std::fs::read_to_string(root().join(file)).expect("a tracked file");
    let calls = |text: &str, call: &str| {
        let mut lines = text.lines().map(|line| line.trim().trim_start_matches("part "));
        lines.any(|line| line == call || line.starts_with(&format!("{call} ")))
    };
    match runner {
        Runner::Ci => assert!(calls(&read(".ci/run"), &format!("make {target}")), "{place}: .ci/run does not call it"),
        Runner::Test => {
            let makefile = read("Makefile");
            let (_, rest) = makefile.split_once("\ntest:").expect("a target");
            let recipe = rest.split("\n\n").next().expect("text");
            assert!(calls(recipe, &format!("$(MAKE) {target}")), "{place}: make test does not call it");
        }
        Runner::Feature(feature) => {
            let makefile = read("Makefile");
            assert!(makefile.contains("$(CARGO) test $(WHOLE)\n"));
            assert!(makefile.contains(feature), "{place}: make test is without {feature}");
        }
        Runner::Hand(reason) => assert!(!reason.is_empty()),
    }
}

/// Runs the program of a package if it was built with this test, as by `cargo test --workspace`.
fn run_package(place: &str, package: &str, arguments: &[String]) {
    succeeds(place, Command::new(env!("CARGO")).args(["pkgid", package]).current_dir(root()));
    let program = Path::new(crate::PATHCALL).with_file_name(package);
    if program.is_file() {
        succeeds(place, Command::new(program).args(arguments).current_dir(root()));
    }
}

/// Service on free ports that has reported `ready`.
struct Service {
    child: Child,
    /// URL of its controller.
    url: String,
}

impl Service {
    #[track_caller]
    fn start(place: &str, service: &str, options: &[&str]) -> Self {
        let ports: &[&str] = match service {
            "up" => &["--listen", "127.0.0.1:0", "--data", "127.0.0.1:0", "--control", "127.0.0.1:0"],
            "element" => &["--data", "127.0.0.1:0", "--control", "127.0.0.1:0"],
            _ => &["--listen", "127.0.0.1:0"],
        };
        let mut command = Command::new(crate::PATHCALL);
        command.arg(service).args(options).args(ports).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().expect("the command is built");
        let mut service = Self { child, url: String::new() };
        let mut ready = String::new();
        let stdout = service.child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut ready).expect("a line");
        assert!(ready.starts_with("ready: "), "{place}: {ready:?}");
        let url = ready.split("controller at ").nth(1).and_then(|rest| rest.split([',', '\n']).next());
        service.url = url.unwrap_or_default().to_owned();
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("child process");
    }
}

/// Time limit of a command, including builds by `make`.
const COMMAND_MAX: Duration = Duration::from_secs(300);

/// Runs the command to its end; a command that hangs fails by itself, not the whole run.
#[track_caller]
fn succeeds(place: &str, command: &mut Command) {
    // Commands in the pages may run other programs of this workspace.
    let own = Path::new(crate::PATHCALL).parent().expect("a directory").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let child = command
        .env("PATH", format!("{own}:{path}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.unwrap_or_else(|error| panic!("{place}: {error}"));
    let (id, (done, ended)) = (child.id(), mpsc::channel());
    thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(COMMAND_MAX) else {
        let killed = Command::new("kill").args(["-9", &id.to_string()]).status();
        panic!("{place}: {command:?} runs for more than {COMMAND_MAX:?}; killed: {killed:?}");
    };
    let output = output.expect("its output");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: {command:?}: {stderr}{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn pages_have_no_indented_command_blocks() {
    for (page, text) in pages() {
        let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
        for line in indented {
            let command = ["make ", "cargo ", "pathcall ", "target/"].iter().any(|start| line.starts_with(start));
            assert!(!command, "{page}: indented command, to be put in a block marked sh: {line}");
        }
    }
}
