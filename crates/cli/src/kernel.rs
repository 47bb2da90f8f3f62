//! `pathcall program report --xdp`: what the program in the kernel costs, in instructions and time.

use crate::failure::Failure;

/// Why there is nothing to report, where the program was not built in.
#[cfg(not(feature = "xdp"))]
pub(crate) fn report(_: bool) -> Result<String, Failure> {
    Err(pathcall_element::Error::NoXdp.into())
}

#[cfg(feature = "xdp")]
pub(crate) use with::report;

#[cfg(feature = "xdp")]
mod with {
    use std::time::Duration;

    use pathcall_xdp::Typical;
    use pathcall_xdp::cost::{COMPILER, instructions};
    use serde_json::json;

    use super::Failure;
    use pathcall_console::Table;

    /// Frames of each kind that are timed; the median counts.
    const RUNS: u32 = 2_000;

    /// Times of typical frames; or why there are none: who may not load programs sees the instructions.
    type Times = Result<Vec<(String, Duration)>, pathcall_xdp::Error>;

    /// Text, or JSON.
    pub(crate) fn report(as_json: bool) -> Result<String, Failure> {
        let files = instructions().map_err(pathcall_element::Error::Xdp)?;
        let times = times();
        Ok(if as_json { json(&files, &times) } else { text(&files, &times) })
    }

    fn times() -> Times {
        Ok(Typical::times(RUNS)?.into_iter().map(|(typical, time)| (typical.name(), time)).collect())
    }

    fn text(files: &[(String, u32)], times: &Times) -> String {
        let total: u32 = files.iter().map(|(_, count)| count).sum();
        let mut by_file = Table::new(["file", "instructions", "share"]);
        for (file, count) in files {
            let share = f64::from(*count) * 100.0 / f64::from(total.max(1));
            by_file.row([file.clone(), count.to_string(), format!("{share:.1} %")]);
        }
        let times = match times {
            Err(why) => format!("no times: {why}\n"),
            Ok(times) => {
                let mut by_frame = Table::new(["frame", "ns"]);
                for (name, time) in times {
                    by_frame.row([name.clone(), time.as_nanos().to_string()]);
                }
                format!(
                    "time of a frame, the median of {RUNS} that come one by one; without driver and route\n{by_frame}"
                )
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
