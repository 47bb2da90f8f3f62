//! Verdicts of tshark on each frame.

use std::path::Path;
use std::process::{Command, Stdio};

/// Verdict of `tcp.analysis` on retransmission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No verdict.
    Nothing,
    /// Retransmission of no special kind.
    Retransmission,
    /// Retransmission soon after duplicate acknowledgements.
    Fast,
    /// Retransmission of acknowledged bytes.
    Spurious,
    OutOfOrder,
    KeepAlive,
}

impl Verdict {
    /// True for `tcp.analysis.retransmission`, which is set for all three kinds.
    pub fn is_retransmission(self) -> bool {
        matches!(self, Self::Retransmission | Self::Fast | Self::Spurious)
    }
}

const FIELDS: [&str; 5] =
    ["retransmission", "fast_retransmission", "spurious_retransmission", "out_of_order", "keep_alive"];

/// True if tshark is installed; prints a note if not.
pub fn is_there() -> bool {
    let found = Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "tshark (Debian: tshark) is not installed");
        println!("skipped: tshark (Debian: tshark) is not installed");
    }
    found
}

/// Verdict for each frame, in order.
pub fn verdicts(capture: &Path) -> Vec<Verdict> {
    let mut command = Command::new("tshark");
    // Ignores settings of the user.
    command.env("WIRESHARK_CONFIG_DIR", env!("CARGO_TARGET_TMPDIR")).env("LC_ALL", "C");
    command
        .args(["-n", "-o", "tcp.analyze_sequence_numbers:TRUE", "-T", "fields", "-E", "separator=,", "-r"])
        .arg(capture);
    command.args(["-e", "frame.number"]);
    for field in FIELDS {
        command.arg("-e").arg(format!("tcp.analysis.{field}"));
    }
    let output = command.stdin(Stdio::null()).output().expect("tshark runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let verdict = |(at, line): (usize, &str)| {
        let mut words = line.split(',');
        assert_eq!(words.next(), Some((at + 1).to_string().as_str()), "a line for each frame");
        let set: Vec<bool> = words.map(|word| !word.is_empty()).collect();
        match set[..] {
            [_, true, _, _, _] => Verdict::Fast,
            [_, _, true, _, _] => Verdict::Spurious,
            [true, _, _, _, _] => Verdict::Retransmission,
            [_, _, _, true, _] => Verdict::OutOfOrder,
            [_, _, _, _, true] => Verdict::KeepAlive,
            [false, false, false, false, false] => Verdict::Nothing,
            _ => panic!("expected {} fields: {line}", FIELDS.len()),
        }
    };
    text.lines().enumerate().map(verdict).collect()
}
