//! Test of the documentation's commands in this workspace: the lines after `cd papers` of blocks marked `sh`.

use std::path::{Path, PathBuf};

use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_test_support::application::command;
use pathcall_test_support::element::by_element;

/// URL of the controller of `pathcall up`.
const CONTROLLER: &str = "http://127.0.0.1:7700";
/// Option that needs several hosts, with the test that runs several hosts as processes.
const HOSTS: (&str, &str) = ("--at", "apps/allreduce/tests/run.rs");

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Commands with their page.
fn commands() -> Vec<(String, String)> {
    let pages = std::fs::read_dir(workspace().join("../docs")).expect("the pages");
    let pages = pages.map(|entry| entry.expect("a page").path()).filter(|path| path.extension() == Some("md".as_ref()));
    let mut commands = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for block in text.split("```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
            let own = block.lines().skip_while(|line| *line != "cd papers").skip(1);
            let own = own.map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned());
            commands.extend(own.map(|command| (page.display().to_string(), command)));
        }
    }
    commands
}

#[tokio::test]
async fn documented_commands_succeed() {
    by_element(|controller| {
        let commands = commands();
        assert!(commands.len() >= 8, "the pages show commands: {commands:?}");
        for (page, line) in commands {
            run(&format!("{page}: {line}"), &line, controller);
        }
    })
    .await;
}

/// Runs the program that was built beside this test.
fn run(place: &str, line: &str, controller: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["cargo", "run", "--release", "-p", package, "--", arguments @ ..] = &words[..] else {
        panic!("{place}: no test runs this command");
    };
    if arguments.contains(&HOSTS.0) {
        let test = std::fs::read_to_string(workspace().join(HOSTS.1)).expect("a test");
        assert!(test.contains(&format!("\"{}\"", HOSTS.0)), "{place}: {} does not run this command", HOSTS.1);
        return;
    }
    if arguments.iter().any(|word| word.starts_with("opencl:"))
        && let Err(error) = open(&DeviceChoice::OpenCl(0))
    {
        assert!(std::env::var_os(pathcall_testbed::ROOT_TESTS).is_none(), "{place}: {error}");
        println!("{place} is left out: {error}");
        return;
    }
    let arguments = arguments.iter().map(|word| if *word == CONTROLLER { controller } else { word });
    let output = command(package).args(arguments).current_dir(workspace()).output().expect("the process starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: {printed}{}", String::from_utf8_lossy(&output.stdout));
}
