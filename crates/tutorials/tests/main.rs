//! Each tutorial followed from its first command to its last; and that none is left out.

mod reader;

use std::path::Path;
use std::process::Command;

use pathcall_testbed::root_tests;
use reader::{Reader, clone, command, has_xdp, skipped};

/// Follows a page on a testbed of its own, as root, with the kernel's element.
fn on_testbed(name: &str, follow: impl FnOnce(Reader)) {
    if !root_tests(&format!("{name}.md")) {
        return;
    }
    let Some(pathcall) = command() else { return skipped(name, "there is no target/debug/pathcall") };
    if !has_xdp(&pathcall) {
        return skipped(name, "pathcall is built without the feature xdp");
    }
    let bed = format!("tut{name}{}", std::process::id());
    let _leftover = Leftover(&pathcall, &bed);
    follow(Reader::new().shared_network().variable("PATHCALL_TESTBED", &bed));
}

/// A page that was not followed to its end leaves a testbed.
struct Leftover<'a>(&'a Path, &'a str);

impl Drop for Leftover<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(["testbed", "down", "--name", self.1]).output();
    }
}

#[test]
fn sums_are_made_on_the_way() {
    Reader::new().example("map").program("visits").follow("filter");
}

#[test]
fn calls_of_a_service_are_cloned() {
    Reader::new().example("clone").program("greeter").follow("clone");
}

#[test]
fn a_call_takes_three_hops() {
    Reader::new().example("delegate").program("docs").follow("delegate");
}

#[test]
fn a_host_chooses_who_answers() {
    Reader::new().example("place").program("digests").follow("place");
}

#[test]
fn a_function_runs_over_a_capture_and_live() {
    on_testbed("function", |reader| reader.example("function").follow("function"));
}

#[test]
fn an_element_in_the_kernel_is_broken_and_comes_back() {
    on_testbed("xdp", |reader| reader.beside("kv").follow("xdp"));
}

#[test]
fn parties_show_certificates() {
    Reader::new().follow("secure");
}

#[test]
fn every_page_is_followed() {
    let folder = clone().join("docs/tutorials");
    let own = include_str!("main.rs");
    let mut pages = 0;
    for entry in std::fs::read_dir(&folder).expect("the tutorials") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        let Some(name) = name.strip_suffix(".md").filter(|name| *name != "README") else { continue };
        let call = format!("follow(\"{name}\")");
        assert!(own.contains(&call), "{name}.md is followed by no test");
        pages += 1;
    }
    assert!(pages > 2, "where are the tutorials?");
}
