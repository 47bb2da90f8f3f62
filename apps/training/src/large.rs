//! Gradients of a larger model, without the model: four workers sum arrays of four-byte values. Each sum is compared with
//! the expected one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use apps_report::call_path::{CallPath, Lanes, Transport, tonic_channel};
use apps_report::{Report, digest};
use pathcall::types::FpArray32;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::pb;
use crate::pb::training_client::TrainingClient;

/// Number of workers: the filter's threshold.
pub(crate) const WORKERS: usize = 4;

/// Values of the sum that opens the connections.
const WARM_VALUES: usize = 256;

/// Sums `rounds` gradients. Latencies are those of whole sums; a short sum before them opens the connections.
pub(crate) async fn run(way: &CallPath, url: &str, values: usize, rounds: usize) -> Result<(Report, Lanes)> {
    ensure!(values > 0 && rounds > 0, "--values and --rounds: expected 1 or more, got {values} and {rounds}");
    let start = Arc::new(Barrier::new(WORKERS));
    let mut workers = JoinSet::new();
    for index in 0..WORKERS {
        let part = worker(url.to_owned(), way.plain, (index, values, rounds), start.clone());
        workers.spawn(way.places.clone().client(index, part));
    }
    let (mut latencies, mut lanes, mut result) = (Vec::new(), Lanes::default(), String::new());
    // The first result of any worker: the others wait for one that failed.
    while let Some(done) = workers.join_next().await {
        let done = done??;
        latencies.extend(done.latencies);
        lanes.add(done.lanes);
        result = done.digest;
    }
    let took = latencies.iter().sum::<Duration>() / WORKERS as u32;
    Ok((Report { digest: result, ..Report::new("training", way.plain, latencies, took) }, lanes))
}

struct Done {
    latencies: Vec<Duration>,
    lanes: Lanes,
    digest: String,
}

async fn worker(url: String, plain: bool, job: (usize, usize, usize), start: Arc<Barrier>) -> Result<Done> {
    if plain {
        return add(TrainingClient::new(tonic_channel(url).await?), job, &start).await;
    }
    let channel = pathcall::Channel::connect(url, &pb::PATHCALL).await?;
    let client = TrainingClient::new(channel.clone());
    let mut done = add(client, job, &start).await?;
    done.lanes.count(&channel);
    Ok(done)
}

async fn add(
    client: TrainingClient<impl Transport>,
    (index, values, rounds): (usize, usize, usize),
    start: &Barrier,
) -> Result<Done> {
    let mut client = client.max_decoding_message_size(usize::MAX);
    let gradient: Vec<f32> = (0..values).map(|at| value(index, at)).collect();
    let parts: Vec<Vec<f32>> = (0..WORKERS).map(|worker| (0..values).map(|at| value(worker, at)).collect()).collect();
    let expected = sum(&parts);
    drop(parts);
    let mut latencies = Vec::new();
    for round in 0..=rounds {
        // The first round opens connections.
        let length = if round == 0 { values.min(WARM_VALUES) } else { values };
        let data = gradient[..length].to_vec();
        start.wait().await;
        let began = Instant::now();
        let reply = client.update_large(pb::LargeGrad { tensor: Some(FpArray32 { data }) }).await?;
        let took = began.elapsed();
        let sums = reply.into_inner().tensor.unwrap_or_default().data;
        ensure!(sums == expected[..length], "worker {index}, round {round}: wrong sums");
        if round > 0 {
            latencies.push(took);
        }
    }
    let bytes: Vec<u8> = expected.iter().flat_map(|value| value.to_be_bytes()).collect();
    Ok(Done { latencies, lanes: Lanes::default(), digest: digest(std::iter::once(&bytes[..])) })
}

/// Value of a worker's gradient. Single precision and the filter's decimals represent it exactly, like its sums.
fn value(worker: usize, at: usize) -> f32 {
    ((at + 7 * worker) % 1009) as f32 * 0.125
}

/// Sum of these gradients, value by value.
pub(crate) fn sum(parts: &[Vec<f32>]) -> Vec<f32> {
    let mut sums = parts.first().cloned().unwrap_or_default();
    for part in parts.iter().skip(1) {
        sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    sums
}
