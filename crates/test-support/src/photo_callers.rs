//! Callers of the photo service, which run until the test ends them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::Process;

/// Process with callers of the photo service.
pub struct PhotoCallers(Process);

impl PhotoCallers {
    /// Starts the callers; `command` runs the application on any host. Returns once they have received answers.
    pub fn start(mut command: Command, front: &str) -> Self {
        command.args(["demo", "--front", front, "--callers", "3", "--calls", "20", "--until-told", "--json"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut calling = Self(Process(child.expect("the program is built")));
        let mut printed = String::new();
        let stderr = calling.0.0.stderr.as_mut().expect("piped");
        BufReader::with_capacity(1, stderr).read_line(&mut printed).expect("a line");
        assert_eq!(printed, "under way\n");
        calling
    }

    /// Panics if the callers have ended: one of them received no answer or a wrong one.
    pub fn go_on(&mut self) {
        let child = &mut self.0.0;
        if child.try_wait().expect("child process").is_none() {
            return;
        }
        let mut why = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
        panic!("the callers have ended: {why}");
    }

    /// Ends the callers and returns their report.
    pub fn end(mut self) -> Value {
        let child = &mut self.0.0;
        drop(child.stdin.take());
        let (mut printed, mut why) = (String::new(), String::new());
        child.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
        child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
        assert!(child.wait().expect("child process").success(), "{why}");
        serde_json::from_str(&printed).expect("a report")
    }
}
