//! Shell that runs one command after the other and collects all output.

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
/// Line that the shell prints after each command, with the exit code.
const DONE: &str = "~~~ done";
/// The shell reads commands from a separate descriptor, so that programs do not read them as standard input.
const LOOP: &str =
    "exec 9<&0 </dev/null\nwhile IFS= read -r -u 9 command; do eval \"$command\" 9<&-; echo \"~~~ done $?\"; done";

/// Shell; its children end with it.
pub(crate) struct Shell {
    child: Child,
    commands: ChildStdin,
    printed: Receiver<String>,
    /// Output since the commands of this block began.
    seen: Vec<String>,
    /// Number of output lines that the page has shown.
    shown: usize,
}

impl Shell {
    /// Starts a shell in this folder, with these programs first in PATH.
    pub(crate) fn open(home: &Path, bin: &Path, shared_network: bool, variables: &[(String, String)]) -> Self {
        let path = std::env::var("PATH").unwrap_or_default();
        let (reads, writes) = std::io::pipe().expect("a pipe");
        let mut command = if shared_network { Command::new("bash") } else { in_own_network() };
        command.args(["-c", LOOP]).current_dir(home).env("PATH", format!("{}:{path}", bin.display()));
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(writes.try_clone().expect("a pipe")).stderr(writes).process_group(0);
        let mut child = command.spawn().expect("bash");
        // The command holds the other ends of the pipe.
        drop(command);
        let commands = child.stdin.take().expect("piped");
        Self { child, commands, printed: lines(reads), seen: Vec::new(), shown: 0 }
    }

    /// Starts a new block: later output belongs to it.
    pub(crate) fn begin(&mut self) {
        self.seen.extend(self.printed.try_iter());
        self.shown = self.seen.len();
    }

    /// Runs a command until it ends, or starts it in the background.
    pub(crate) fn run(&mut self, place: &str, command: &str) {
        let text = command.split(" #").next().unwrap_or_default();
        writeln!(self.commands, "{text}").unwrap_or_else(|error| panic!("{place}: {error}\n{}", self.text()));
        let Some(line) = self.wait(|line| line.starts_with(DONE)) else {
            panic!("{place}: not done within {COMMAND_MAX:?}\n{}", self.text());
        };
        let failed = !line.ends_with(" 0");
        let should = command.contains("# fails");
        assert!(failed == should, "{place}: {line}, should it fail: {should}\n{}", self.text());
    }

    /// Waits until these lines were printed, in this order.
    pub(crate) fn expect(&mut self, page: &str, lines: &[String], about: bool) {
        let mut at = self.shown;
        for expected in lines {
            let found = loop {
                if let Some(found) = self.seen[at..].iter().position(|line| matches_page(expected, line, about)) {
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

    /// Ends the remaining processes.
    pub(crate) fn close(self) {}

    /// Waits for the next line that `wanted` accepts; all lines are kept.
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

    fn text(&self) -> String {
        self.seen.join("\n")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        if let Err(error) = kill_process_group(group, Signal::KILL) {
            eprintln!("cannot end the processes of the page: {error}");
        }
        let _ = self.child.wait();
    }
}

/// Shell in its own network namespace, if permitted: the ports that pages name are free there.
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

/// Reads lines as they arrive.
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

/// True if a printed line matches the page; column widths do not matter.
fn matches_page(expected: &str, line: &str, about: bool) -> bool {
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
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Text with each number and its unit replaced by `#`, zero by `0`.
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
            if let Some(after) = rest.strip_prefix(unit).filter(|b| !b.starts_with(char::is_alphanumeric)) {
                rest = after;
                break;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::matches_page;

    #[test]
    fn output_comparison_matches_page_rules() {
        assert!(matches_page("a  b", "a b", false));
        assert!(!matches_page("a 1", "a 2", false));
        assert!(matches_page("a 1", "a 23", true));
        assert!(!matches_page("a 1", "a 0", true));
        assert!(!matches_page("a 0", "a 1", true));
        assert!(matches_page("took 1.5ms at 127.0.0.1:7", "took 20ns at 127.0.0.1:80", true));
        assert!(matches_page("a … c", "a b c", false));
        assert!(!matches_page("a … c", "a b", false));
        assert!(!matches_page("a b", "a b c", false));
        assert!(matches_page("…b…", "a b c", false));
    }
}
