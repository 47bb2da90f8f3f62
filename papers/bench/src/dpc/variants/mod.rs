//! Variants of calls with a given shape, each with servers and a client.

pub(crate) mod baseline;
pub(crate) mod baseline_node;
pub(crate) mod nested;
pub(crate) mod nodes;
pub(crate) mod plain;
pub(crate) mod stubs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

/// Client of a variant; clones share its connections.
pub(crate) trait CallVariant: Clone + Send + Sync + 'static {
    /// Makes one call of a shape, and checks that all replies have arrived.
    fn call(&self, pattern: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Results of calls.
#[derive(Debug, Default)]
pub(crate) struct CallResults {
    pub(crate) latencies: Vec<Duration>,
    /// Errors of failed calls.
    pub(crate) failed: Vec<anyhow::Error>,
    pub(crate) elapsed: Duration,
}

impl CallResults {
    /// Returns the results, or an error if a call has failed.
    pub(crate) fn whole(self) -> Result<Self> {
        let Self { mut failed, latencies, elapsed } = self;
        match failed.pop() {
            Some(error) => {
                Err(error.context(format!("{} calls failed, {} succeeded", failed.len() + 1, latencies.len())))
            }
            None => Ok(Self { latencies, failed, elapsed }),
        }
    }
}

/// Makes calls on the current runtime, `at_once` of them concurrently.
pub(crate) async fn calls(
    variant: impl CallVariant,
    pattern: usize,
    calls: usize,
    at_once: usize,
) -> Result<CallResults> {
    ensure!(calls > 0 && at_once > 0, "no calls");
    let (variant, began) = (Arc::new(variant), Instant::now());
    let mut callers = JoinSet::new();
    for caller in 0..at_once {
        let variant = Arc::clone(&variant);
        // The remaining calls belong to the first callers.
        let own = calls / at_once + usize::from(caller < calls % at_once);
        callers.spawn(async move {
            let mut turn = CallResults::default();
            for _ in 0..own {
                let began = Instant::now();
                match variant.call(pattern).await {
                    Ok(()) => turn.latencies.push(began.elapsed()),
                    Err(error) => turn.failed.push(error),
                }
            }
            turn
        });
    }
    let mut all = CallResults::default();
    while let Some(turn) = callers.join_next().await {
        let turn = turn.context("a caller panicked")?;
        all.latencies.extend(turn.latencies);
        all.failed.extend(turn.failed);
    }
    Ok(CallResults { elapsed: began.elapsed(), ..all })
}
