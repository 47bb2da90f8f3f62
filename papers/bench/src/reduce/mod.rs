//! Processes of this host that sum arrays with Pathcall, and the time per size.

pub(crate) mod rank;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use rank::RankJob;

/// Microseconds of each all-reduce, by the bytes of its arrays.
pub(crate) type Times = BTreeMap<usize, Vec<f64>>;

/// Runs ranks for all sizes, and checks that their results are bit-identical. The times are those of the slowest rank.
pub(crate) fn turn(ranks: usize, registered: bool, sizes: &[(usize, usize)]) -> Result<Times> {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let group = format!("bench-{}-{}", std::process::id(), TURNS.fetch_add(1, Ordering::Relaxed));
    let start = |rank| -> Result<Child> {
        let job = RankJob { group: group.clone(), rank, ranks, registered, sizes: sizes.to_vec() };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--reduce-as", &job.to_args()]).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    };
    let started = (0..ranks).map(start).collect::<Result<Vec<_>>>()?;
    let ended = started.into_iter().map(Child::wait_with_output).collect::<Result<Vec<_>, _>>()?;
    let mut said = Vec::new();
    for (rank, output) in ended.into_iter().enumerate() {
        ensure!(output.status.success(), "rank {rank}: {}", String::from_utf8_lossy(&output.stderr));
        said.push(String::from_utf8(output.stdout)?);
    }
    merge_results(&said)
}

/// Times of the slowest rank, if all ranks have equal results.
fn merge_results(said: &[String]) -> Result<Times> {
    let mut ranks: Vec<_> = said.iter().map(|text| text.lines()).collect();
    let mut times = Times::new();
    loop {
        let lines: Vec<&str> = ranks.iter_mut().filter_map(Iterator::next).collect();
        if lines.is_empty() {
            return Ok(times);
        }
        ensure!(lines.len() == said.len(), "some ranks did more calls than others");
        let calls = lines.iter().map(|line| fields(line)).collect::<Result<Vec<_>>>()?;
        let (bytes, _, hash) = calls[0];
        ensure!(calls.iter().all(|call| call.0 == bytes && call.2 == hash), "results differ: {lines:?}");
        times.entry(bytes).or_default().push(calls.iter().map(|call| call.1).fold(0.0, f64::max));
    }
}

/// Parses the output of a peer's ranks: bytes and seconds.
pub(crate) fn parse_output(text: &str) -> Result<Times> {
    let mut times = Times::new();
    for line in text.lines() {
        let (bytes, us, _) = fields(line)?;
        times.entry(bytes).or_default().push(us);
    }
    Ok(times)
}

fn fields(line: &str) -> Result<(usize, f64, &str)> {
    let (bytes, rest) = line.split_once(' ').with_context(|| format!("bytes and seconds, not {line:?}"))?;
    let (seconds, hash) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok((bytes.parse()?, seconds.parse::<f64>()? * 1e6, hash))
}

/// Median of each size, in order.
pub(crate) fn medians<const N: usize>(times: &Times, sizes: &[(usize, usize)]) -> Result<[f64; N]> {
    let mut medians = [0.0; N];
    for (middle, (bytes, calls)) in medians.iter_mut().zip(sizes) {
        let mut all = times.get(bytes).cloned().unwrap_or_default();
        ensure!(all.len() == *calls, "{} times of {calls} all-reduces of {bytes} bytes", all.len());
        *middle = median(&mut all);
    }
    Ok(medians)
}

/// Median; the greater of two middle values.
pub(crate) fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Limit in microseconds: two unsynchronized threads write the sums of two arrays to both arrays, half each. Median of
/// several turns.
pub(crate) fn two_thread_limit(bytes: usize, turns: usize) -> f64 {
    let half = bytes / size_of::<f32>() / 2;
    let mut arrays: [Vec<f32>; 2] = std::array::from_fn(|k| vec![k as f32; 2 * half]);
    let (mut all, gate) = (Vec::new(), Barrier::new(2));
    for _ in 0..turns {
        // Each array is in the cache of its own processor, as after a write by its rank.
        let [one, other] = &mut arrays;
        thread::scope(|scope| {
            scope.spawn(|| fill(one, 0));
            scope.spawn(|| fill(other, 1));
        });
        let ((a, b), (c, d)) = (one.split_at_mut(half), other.split_at_mut(half));
        let both = |cpu: usize, one: &mut [f32], other: &mut [f32]| {
            pin(cpu);
            gate.wait();
            let began = Instant::now();
            for (one, other) in one.iter_mut().zip(other) {
                let sum = *one + *other;
                (*one, *other) = (sum, sum);
            }
            began.elapsed().as_secs_f64() * 1e6
        };
        let took = thread::scope(|scope| {
            let halves = [scope.spawn(|| both(0, a, c)), scope.spawn(|| both(1, b, d))];
            halves.map(|half| half.join().expect("no panic")).into_iter().fold(0.0, f64::max)
        });
        all.push(took);
    }
    median(&mut all)
}

fn fill(array: &mut [f32], cpu: usize) {
    pin(cpu);
    array.iter_mut().for_each(|value| *value = value.mul_add(0.5, 1.0));
}

/// With too few processors, the limit is that of the existing ones.
fn pin(cpu: usize) {
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_encoding_round_trips() {
        let job = RankJob { group: "g-1".into(), rank: 1, ranks: 2, registered: true, sizes: vec![(64, 3), (8, 1)] };
        assert_eq!(job.to_args(), "g-1,1,2,1,64,3,8,1");
        assert_eq!(RankJob::from_args(&job.to_args()).unwrap(), job);
        assert!(RankJob::from_args("g,1,2").is_err() && RankJob::from_args("g,1,x,0").is_err());
    }

    #[test]
    fn different_rank_results_are_rejected() {
        let [one, same] = ["8 0.5 aa\n8 0.1 bb\n", "8 0.25 aa\n8 0.2 bb\n"].map(str::to_owned);
        let times = merge_results(&[one.clone(), same]).unwrap();
        assert_eq!(times, Times::from([(8, vec![5e5, 2e5])]));
        assert_eq!(medians::<1>(&times, &[(8, 2)]).unwrap(), [5e5]);
        assert!(medians::<1>(&times, &[(8, 3)]).is_err());
        assert!(merge_results(&[one.clone(), "8 0.25 aa\n8 0.2 bc\n".to_owned()]).is_err());
        assert!(merge_results(&[one, "8 0.25 aa\n".to_owned()]).is_err());
    }
}
