//! Results of a run, and comparison of all runs.

use anyhow::{Result, bail};
use apps_load::Latencies;
use pathcall_place::context::telemetry::Telemetry;
use pathcall_place::model::Task;
use pathcall_place::{DeviceRole, SelectionStrategy};
use serde::Serialize;

use crate::AppTestbed;

/// Results of one strategy.
#[derive(Debug, Clone, Serialize)]
pub struct StrategyResults {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Messages sent.
    pub messages: u64,
    /// Operations in the messages.
    pub operations: u64,
    /// Wall time, in seconds.
    pub seconds: f64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Median and 99th percentile of message latency, in microseconds.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// Messages per path.
    pub paths: Vec<PathShare>,
    /// Wrong answers, and the difference of the first one.
    pub wrong: u64,
    /// See `wrong`.
    pub why: Option<String>,
    /// Jobs of the devices.
    pub devices: Vec<DeviceCounts>,
}

/// Messages of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathShare {
    /// Type of the messages.
    pub kind: String,
    /// Path.
    pub path: String,
    /// Messages answered.
    pub messages: u64,
    /// Messages failed.
    pub failed: u64,
    /// Messages that the processors executed instead.
    pub resorted: u64,
    /// Times that the path was left, because it failed or was much slower than predicted.
    pub lefts: u64,
}

/// Jobs of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Role: `cpu`, `acc`; with the host if both ends have devices of their own.
    pub role: &'static str,
    /// Name of the device.
    pub name: String,
    /// Jobs answered.
    pub done: u64,
    /// Jobs that failed or timed out.
    pub failed: u64,
}

/// Results of all strategies.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Application.
    pub app: &'static str,
    /// Application file.
    pub file: String,
    /// Hardware of both hosts.
    pub hardware: [String; 2],
    /// Processor and accelerator.
    pub devices: [String; 2],
    /// Time of each task on each device, in nanoseconds, profiled or from the file.
    pub profiled: Vec<(String, [Option<u64>; 2])>,
    /// Results in the order of the strategies.
    pub runs: Vec<StrategyResults>,
    /// Operations per second of `leo` relative to the better of `all-cpu` and `all-acc`; `None` without these runs.
    pub ratio: Option<f64>,
}

impl StrategyResults {
    pub(crate) fn new(
        strategy: SelectionStrategy,
        (operations, latencies): (u64, &Latencies),
        seconds: f64,
        (wrong, why): (u64, Option<String>),
        (requester, responder): (&Telemetry, &Telemetry),
    ) -> Self {
        let us = |share| latencies.quantile(share).as_secs_f64() * 1e6;
        let paths = requester.paths.iter().map(|path| PathShare {
            kind: path.kind.clone(),
            path: path.name.clone(),
            messages: path.state.done,
            failed: path.state.failed,
            resorted: path.run_on_cpus,
            lefts: path.state.times_left,
        });
        let devices = responder.devices.iter().map(|device| DeviceCounts {
            role: device.role.name(),
            name: device.name.clone(),
            done: device.stats.done,
            failed: device.stats.failed + device.stats.stalled,
        });
        Self {
            strategy: strategy.name(),
            messages: latencies.count(),
            operations,
            seconds,
            operations_per_s: operations as f64 / seconds,
            p50_us: us(0.5),
            p99_us: us(0.99),
            paths: paths.collect(),
            wrong,
            why,
            devices: devices.collect(),
        }
    }

    /// Share of the messages answered by paths with `part` in their name, 0 to 1.
    #[must_use]
    pub fn share(&self, part: &str) -> f64 {
        let of = self.paths.iter().filter(|share| share.path.contains(part)).map(|share| share.messages).sum::<u64>();
        of as f64 / self.messages.max(1) as f64
    }
}

impl Report {
    pub(crate) fn new(app: &'static str, testbed: &AppTestbed, runs: Vec<StrategyResults>) -> Self {
        let rate = |name| runs.iter().find(|run| run.strategy == name).map(|run| run.operations_per_s);
        let single = rate("all-cpu").zip(rate("all-acc")).map(|(cpu, acc)| cpu.max(acc));
        let ratio = rate("leo").zip(single).map(|(leo, single)| leo / single);
        let plan = testbed.plan();
        let times = |task: &Task| [DeviceRole::Cpu, DeviceRole::Acc].map(|role| task.compute_ns[role as usize]);
        Self {
            app,
            file: plan.application.file.clone(),
            hardware: [&plan.requester, &plan.responder].map(|host| host.name.clone()),
            devices: plan.devices.clone().map(|device| device.to_string()),
            profiled: plan.application.tasks.iter().map(|task| (task.name.clone(), times(task))).collect(),
            runs,
            ratio,
        }
    }

    /// Fails if an answer was wrong.
    ///
    /// # Errors
    /// Returns the first wrong answer.
    pub fn all_equal(&self) -> Result<()> {
        match self.runs.iter().find(|run| run.wrong > 0) {
            Some(StrategyResults { strategy, wrong, why, .. }) => {
                bail!("{strategy}: {wrong} wrong answers, first: {}", why.as_deref().unwrap_or_default())
            }
            None => Ok(()),
        }
    }

    /// Prints the report: JSON in one line, or a table.
    pub fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string(self).expect("plain fields"));
            return;
        }
        let [requester, responder] = &self.hardware;
        let [cpu, acc] = &self.devices;
        println!("{} ({}): {requester} asks {responder}; {cpu} and {acc}", self.app, self.file);
        for (task, [cpu, acc]) in &self.profiled {
            let us = |ns: &Option<u64>| ns.map_or("-".into(), |ns| format!("{:.1} us", ns as f64 / 1e3));
            println!("  {task}: {} on the processor, {} on the accelerator", us(cpu), us(acc));
        }
        println!(
            "  {:<16}{:>9}{:>14}{:>10}{:>10}  results  paths",
            "strategy", "messages", "operations/s", "p50 us", "p99 us"
        );
        for run in &self.runs {
            let StrategyResults { strategy, messages, operations_per_s, p50_us, p99_us, wrong, .. } = run;
            let results = if *wrong == 0 { "equal".into() } else { format!("{wrong} wrong") };
            let used = run.paths.iter().filter(|share| share.messages + share.failed > 0);
            let shares = used.map(|PathShare { kind, path, messages: of, failed, lefts, .. }| {
                let failed = if *failed > 0 { format!(" ({failed} failed)") } else { String::new() };
                let left = if *lefts > 0 { format!(" (left {lefts} times)") } else { String::new() };
                format!("{kind} {path} {:.0} %{failed}{left}", *of as f64 * 100.0 / (*messages).max(1) as f64)
            });
            let shares = shares.collect::<Vec<_>>().join(", ");
            println!(
                "  {strategy:<16}{messages:>9}{operations_per_s:>14.0}{p50_us:>10.0}{p99_us:>10.0}  {results:<9}{shares}"
            );
        }
        if let Some(ratio) = self.ratio {
            println!("  leo relative to the better single device: {ratio:.2}x");
        }
    }
}
