//! Processes of this host that sum arrays: ours, and how long a turn of them takes for each size.

pub(crate) mod rank;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use rank::Job;

/// Microseconds of each all-reduce, by the bytes of its arrays.
pub(crate) type Times = BTreeMap<usize, Vec<f64>>;

/// Starts ranks of ours, lets them do each size so often, and sees that all have the same bits. Times are those of the
/// slowest rank.
pub(crate) fn turn(ranks: usize, registered: bool, sizes: &[(usize, usize)]) -> Result<Times> {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let group = format!("bench-{}-{}", std::process::id(), TURNS.fetch_add(1, Ordering::Relaxed));
    let start = |rank| -> Result<Child> {
        let job = Job { group: group.clone(), rank, ranks, registered, sizes: sizes.to_vec() };
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
    together(&said)
}

/// Times of the slowest rank, if all came to the same results.
fn together(said: &[String]) -> Result<Times> {
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

/// What ranks of a peer have printed: bytes and seconds.
pub(crate) fn printed(text: &str) -> Result<Times> {
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

/// The median of each size, in their order.
pub(crate) fn medians<const N: usize>(times: &Times, sizes: &[(usize, usize)]) -> Result<[f64; N]> {
    let mut medians = [0.0; N];
    for (middle, (bytes, calls)) in medians.iter_mut().zip(sizes) {
        let mut all = times.get(bytes).cloned().unwrap_or_default();
        ensure!(all.len() == *calls, "{} times of {calls} all-reduces of {bytes} bytes", all.len());
        *middle = median(&mut all);
    }
    Ok(medians)
}

/// The middle one, or the greater of two.
pub(crate) fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Microseconds that two threads take to write the sums of two arrays to both, each a half, without a word to each
/// other: the limit. The median of some turns.
pub(crate) fn bare(bytes: usize, turns: usize) -> f64 {
    let half = bytes / size_of::<f32>() / 2;
    let mut arrays: [Vec<f32>; 2] = std::array::from_fn(|k| vec![k as f32; 2 * half]);
    let (mut all, gate) = (Vec::new(), Barrier::new(2));
    for _ in 0..turns {
        // Each array in the cache of its own processor, as ranks have just written theirs.
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

/// Where there are too few processors, the limit is that of those there are.
fn pin(cpu: usize) {
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpu);
    let _ = rustix::thread::sched_setaffinity(None, &own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_as_its_arguments_say() {
        let job = Job { group: "g-1".into(), rank: 1, ranks: 2, registered: true, sizes: vec![(64, 3), (8, 1)] };
        assert_eq!(job.to_args(), "g-1,1,2,1,64,3,8,1");
        assert_eq!(Job::from_args(&job.to_args()).unwrap(), job);
        assert!(Job::from_args("g,1,2").is_err() && Job::from_args("g,1,x,0").is_err());
    }

    #[test]
    fn results_that_differ_are_no_results() {
        let [one, same] = ["8 0.5 aa\n8 0.1 bb\n", "8 0.25 aa\n8 0.2 bb\n"].map(str::to_owned);
        let times = together(&[one.clone(), same]).unwrap();
        assert_eq!(times, Times::from([(8, vec![5e5, 2e5])]));
        assert_eq!(medians::<1>(&times, &[(8, 2)]).unwrap(), [5e5]);
        assert!(medians::<1>(&times, &[(8, 3)]).is_err());
        assert!(together(&[one.clone(), "8 0.25 aa\n8 0.2 bc\n".to_owned()]).is_err());
        assert!(together(&[one, "8 0.25 aa\n".to_owned()]).is_err());
    }
}
