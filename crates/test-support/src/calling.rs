//! Callers of the photo service that tests end when they have seen enough.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::Process;

/// Callers of the photo service that go on until they are told.
pub struct Calling(Process);

impl Calling {
    /// `command` runs the application, on whatever host. They have had answers when this returns.
    pub fn start(mut command: Command, front: &str) -> Self {
        command.args(["demo", "--front", front, "--callers", "3", "--calls", "20", "--until-told", "--json"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut calling = Self(Process(child.expect("it is built")));
        let mut said = String::new();
        let stderr = calling.0.0.stderr.as_mut().expect("piped");
        BufReader::with_capacity(1, stderr).read_line(&mut said).expect("a line");
        assert_eq!(said, "under way\n");
        calling
    }

    /// Fails if they have ended: one of them had no answer, or a wrong one.
    pub fn go_on(&mut self) {
        let child = &mut self.0.0;
        if child.try_wait().expect("a child of ours").is_none() {
            return;
        }
        let mut why = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
        panic!("the callers have ended: {why}");
    }

    /// What came of them.
    pub fn end(mut self) -> Value {
        let child = &mut self.0.0;
        drop(child.stdin.take());
        let (mut said, mut why) = (String::new(), String::new());
        child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
        assert!(child.wait().expect("a child of ours").success(), "{why}");
        serde_json::from_str(&said).expect("a report")
    }
}
