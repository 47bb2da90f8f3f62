//! A shell that is given one command after the other, and all that it and its programs print.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longer than any command of a page takes.
const COMMAND_MAX: Duration = Duration::from_secs(240);
/// What the shell says after each command, with its exit code.
const DONE: &str = "~~~ done";
/// Commands come by the standard input, which theirs must not be.
const LOOP: &str =
    "exec 9<&0 </dev/null\nwhile IFS= read -r -u 9 command; do eval \"$command\" 9<&-; echo \"~~~ done $?\"; done";

/// The shell; what it has started ends with it.
pub(crate) struct Shell {
    child: Child,
    commands: ChildStdin,
    printed: Receiver<String>,
    /// Since the commands of this block began.
    seen: Vec<String>,
    /// How many of them the page has shown.
    shown: usize,
}

impl Shell {
    /// In this folder, with these programs before all others.
    pub(crate) fn open(home: &Path, bin: &Path, shared_network: bool, variables: &[(String, String)]) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let (reads, writes) = std::io::pipe().expect("a pipe");
        let mut command = if shared_network { Command::new("bash") } else { in_own_network() };
        command.args(["-c", LOOP]).current_dir(home).env("PATH", format!("{}:{path}", bin.display()));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(writes.try_clone().expect("a pipe")).stderr(writes).process_group(0);
        let mut child = command.spawn().expect("bash");
        // It has the pipe's other ends.
        drop(command);
        let commands = child.stdin.take().expect("piped");
        Self { child, commands, printed: lines(reads), seen: Vec::new(), shown: 0 }
    }

    /// What is printed from here on is another block's.
    pub(crate) fn begin(&mut self) {
        self.seen.extend(self.printed.try_iter());
        self.shown = self.seen.len();
    }

    /// Runs a command until it ends, or goes on without being waited for.
    pub(crate) fn run(&mut self, place: &str, command: &str) {
        let text = command.split(" #").next().unwrap_or_default();
        writeln!(self.commands, "{text}").unwrap_or_else(|error| panic!("{place}: {error}\n{}", self.said()));
        let Some(line) = self.wait(|line| line.starts_with(DONE)) else {
            panic!("{place}: not done within {COMMAND_MAX:?}\n{}", self.said());
        };
        let failed = !line.ends_with(" 0");
        let should = command.contains("# fails");
        assert!(failed == should, "{place}: {line}, should it fail: {should}\n{}", self.said());
    }

    /// Waits until these lines were printed, in this order.
    pub(crate) fn expect(&mut self, page: &str, lines: &[String], about: bool) {
        let mut at = self.shown;
        for expected in lines {
            let found = loop {
                if let Some(found) = self.seen[at..].iter().position(|line| alike(expected, line, about)) {
                    break at + found;
                }
                if self.wait(|_| true).is_none() {
                    let kind = if about { "text about" } else { "text" };
                    panic!(
                        "{page}.md: did not come ({kind}): {expected}\nbut:\n{}",
                        self.seen[self.shown..].join("\n")
                    );
                }
            };
            at = found + 1;
        }
        self.shown = at;
    }

    /// Ends what is left.
    pub(crate) fn close(self) {}

    /// The next line for which `wanted` says so, kept as all are.
    fn wait(&mut self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let until = Instant::now() + COMMAND_MAX;
        loop {
            match self.printed.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let found = wanted(&line);
                    self.seen.push(line.clone());
                    if found {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn said(&self) -> String {
        self.seen.join("\n")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        if let Err(error) = kill_process_group(group, Signal::KILL) {
            eprintln!("what the page has started can't be ended: {error}");
        }
        let _ = self.child.wait();
    }
}

/// A shell in a network of its own, if the system lets us: the ports that pages name are free there.
fn in_own_network() -> Command {
    let lone = "ip link set lo up && exec bash \"$@\"";
    for options in [&["--net"][..], &["--user", "--map-root-user", "--net"]] {
        let works = Command::new("unshare").args(options).args(["ip", "link", "set", "lo", "up"]).output();
        if works.is_ok_and(|output| output.status.success()) {
            let mut command = Command::new("unshare");
            command.args(options).args(["bash", "-c", lone, "bash"]);
            return command;
        }
    }
    Command::new("bash")
}

/// Reads lines as they come.
fn lines(from: PipeReader) -> Receiver<String> {
    let (send, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Whether a printed line is what the page shows; how wide columns are does not matter.
fn alike(expected: &str, line: &str, about: bool) -> bool {
    let plain = |text: &str| {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if about { numbers(&words) } else { words }
    };
    let (expected, line) = (plain(expected), plain(line));
    let mut parts = expected.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// The text with each number and its unit replaced by `#`, zero by `0`.
fn numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        let number = &rest[at..];
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let zero = number[..end].chars().all(|c| matches!(c, '0' | '.'));
        out.push(if zero { '0' } else { '#' });
        rest = &number[end..];
        for unit in ["ns", "µs", "ms", "s"] {
            if let Some(behind) = rest.strip_prefix(unit).filter(|b| !b.starts_with(char::is_alphanumeric)) {
                rest = behind;
                break;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn lines_are_compared_as_the_page_says() {
        assert!(alike("a  b", "a b", false));
        assert!(!alike("a 1", "a 2", false));
        assert!(alike("a 1", "a 23", true));
        assert!(!alike("a 1", "a 0", true));
        assert!(!alike("a 0", "a 1", true));
        assert!(alike("took 1.5ms at 127.0.0.1:7", "took 20ns at 127.0.0.1:80", true));
        assert!(alike("a … c", "a b c", false));
        assert!(!alike("a … c", "a b", false));
        assert!(!alike("a b", "a b c", false));
        assert!(alike("…b…", "a b c", false));
    }
}
