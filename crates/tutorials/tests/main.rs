//! Tests that follow each tutorial from the first command to the last.

mod reader;

use std::path::Path;
use std::process::Command;

use pathcall_testbed::root_tests;
use reader::{TutorialReader, command, has_xdp, repository, skipped};

/// Follows a page on its own testbed, as root, with the element in the kernel.
fn on_testbed(name: &str, follow: impl FnOnce(TutorialReader)) {
    if !root_tests(&format!("{name}.md")) {
        return;
    }
    let Some(pathcall) = command() else { return skipped(name, "there is no target/debug/pathcall") };
    if !has_xdp(&pathcall) {
        return skipped(name, "pathcall is built without the feature xdp");
    }
    let bed = format!("tut{name}{}", std::process::id());
    let _leftover = Leftover(&pathcall, &bed);
    follow(TutorialReader::new().shared_network().variable("PATHCALL_TESTBED", &bed));
}

/// Testbed that a page leaves if it was not followed to its end.
struct Leftover<'a>(&'a Path, &'a str);

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(["testbed", "down", "--name", self.1]).output();
    }
}

#[test]
fn filter_tutorial_works() {
    TutorialReader::new().example("map").program("visits").follow("filter");
}

#[test]
fn clone_tutorial_works() {
    TutorialReader::new().example("clone").program("greeter").follow("clone");
}

#[test]
fn delegate_tutorial_works() {
    TutorialReader::new().example("delegate").program("docs").follow("delegate");
}

#[test]
fn place_tutorial_works() {
    TutorialReader::new().example("place").program("digests").follow("place");
}

#[test]
fn function_tutorial_works() {
    on_testbed("function", |reader| reader.example("function").follow("function"));
}

#[test]
fn xdp_tutorial_works() {
    on_testbed("xdp", |reader| reader.beside("kv").follow("xdp"));
}

#[test]
fn secure_tutorial_works() {
    TutorialReader::new().follow("secure");
}

#[test]
fn every_tutorial_has_test() {
    let folder = repository().join("docs/tutorials");
    let own = include_str!("main.rs");
    let mut pages = 0;
    for entry in std::fs::read_dir(&folder).expect("the tutorials") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        let Some(name) = name.strip_suffix(".md").filter(|name| *name != "README") else { continue };
        let call = format!("follow(\"{name}\")");
        assert!(own.contains(&call), "{name}.md is followed by no test");
        pages += 1;
    }
    assert!(pages > 2, "no tutorials found");
}
