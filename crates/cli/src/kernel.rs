//! Command `pathcall program report --xdp`: cost of the XDP program in instructions and time.

use crate::failure::Failure;

/// Fails: this build has no XDP program.
#[cfg(not(feature = "xdp"))]
pub(crate) fn report(_: bool) -> Result<String, Failure> {
    Err(pathcall_element::Error::NoXdp.into())
}

#[cfg(feature = "xdp")]
pub(crate) use with_xdp::report;

#[cfg(feature = "xdp")]
mod with_xdp {
    use std::time::Duration;

    use pathcall_xdp::TypicalFrame;
    use pathcall_xdp::cost::{COMPILER, instructions};
    use serde_json::json;

    use super::Failure;
    use pathcall_console::TextTable;

    /// Timed frames of each kind, of which the median is reported.
    const RUNS: u32 = 2_000;

    /// Times of typical frames. Without the right to load programs there are only instruction counts.
    type Times = Result<Vec<(String, Duration)>, pathcall_xdp::Error>;

    /// Report as text or JSON.
    pub(crate) fn report(as_json: bool) -> Result<String, Failure> {
        let files = instructions().map_err(pathcall_element::Error::Xdp)?;
        let times = times();
        Ok(if as_json { json(&files, &times) } else { text(&files, &times) })
    }

    fn times() -> Times {
        Ok(TypicalFrame::times(RUNS)?.into_iter().map(|(typical, time)| (typical.name(), time)).collect())
    }

    fn text(files: &[(String, u32)], times: &Times) -> String {
        let total: u32 = files.iter().map(|(_, count)| count).sum();
        let mut by_file = TextTable::new(["file", "instructions", "share"]);
        for (file, count) in files {
            let share = f64::from(*count) * 100.0 / f64::from(total.max(1));
            by_file.row([file.clone(), count.to_string(), format!("{share:.1} %")]);
        }
        let times = match times {
            Err(why) => format!("no times: {why}\n"),
            Ok(times) => {
                let mut by_frame = TextTable::new(["frame", "ns"]);
                for (name, time) in times {
                    by_frame.row([name.clone(), time.as_nanos().to_string()]);
                }
                format!("median time of a frame over {RUNS} sequential runs, without driver and routing\n{by_frame}")
            }
        };
        format!("the XDP program, instructions by file of bpf/ ({COMPILER})\n{by_file}all: {total}\n\n{times}")
    }

    fn json(files: &[(String, u32)], times: &Times) -> String {
        let files: Vec<_> = files.iter().map(|(file, count)| json!({ "file": file, "instructions": count })).collect();
        let times = times.as_ref().ok().map(|times| {
            let frame = |(name, time): &(String, Duration)| json!({ "frame": name, "ns": time.as_nanos() as u64 });
            times.iter().map(frame).collect::<Vec<_>>()
        });
        format!("{:#}\n", json!({ "compiler": COMPILER, "files": files, "frames": times }))
    }
}
