//! The ways to make a call of a shape: each with servers, and a client that calls them.

pub(crate) mod nodes;
pub(crate) mod plain;
pub(crate) mod stubs;
pub(crate) mod twin;
pub(crate) mod twins;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

/// A client of one of the ways; clones share its connections.
pub(crate) trait Way: Clone + Send + Sync + 'static {
    /// Makes one call of a shape, and checks that all came that should.
    fn call(&self, pattern: usize) -> impl Future<Output = Result<()>> + Send;
}

/// What became of calls.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) took: Vec<Duration>,
    /// Why calls failed.
    pub(crate) failed: Vec<anyhow::Error>,
    pub(crate) elapsed: Duration,
}

impl Turn {
    /// The same, if no call has failed.
    pub(crate) fn whole(self) -> Result<Self> {
        let Self { mut failed, took, elapsed } = self;
        match failed.pop() {
            Some(error) => Err(error.context(format!("{} calls failed, {} did not", failed.len() + 1, took.len()))),
            None => Ok(Self { took, failed, elapsed }),
        }
    }
}

/// Makes calls, so many `at_once`, on the current runtime.
pub(crate) async fn calls(way: impl Way, pattern: usize, calls: usize, at_once: usize) -> Result<Turn> {
    ensure!(calls > 0 && at_once > 0, "no calls");
    let (way, began) = (Arc::new(way), Instant::now());
    let mut callers = JoinSet::new();
    for caller in 0..at_once {
        let way = Arc::clone(&way);
        // The rest goes to the first callers.
        let own = calls / at_once + usize::from(caller < calls % at_once);
        callers.spawn(async move {
            let mut turn = Turn::default();
            for _ in 0..own {
                let began = Instant::now();
                match way.call(pattern).await {
                    Ok(()) => turn.took.push(began.elapsed()),
                    Err(error) => turn.failed.push(error),
                }
            }
            turn
        });
    }
    let mut all = Turn::default();
    while let Some(turn) = callers.join_next().await {
        let turn = turn.context("a caller panicked")?;
        all.took.extend(turn.took);
        all.failed.extend(turn.failed);
    }
    Ok(Turn { elapsed: began.elapsed(), ..all })
}
