//! Servers that are killed at any point, and their successors.

use std::time::{Duration, Instant};

use pathcall_rpc::delegate::{Handlers, HandlersError, NodeConfig, RunningHandlers};
use pathcall_test_support::HANG;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Server with a runtime of its own; killing it ends all its tasks at once.
pub struct Process(Option<Runtime>);

impl Process {
    /// Starts a server at this address as soon as the address is free.
    pub async fn start(
        config: NodeConfig,
        set_up: impl Fn(Handlers) -> Handlers + Send + 'static,
    ) -> (Self, RunningHandlers) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let serving = runtime.spawn(async move {
            let began = Instant::now();
            loop {
                match set_up(Handlers::new().node(config.clone())).start().await {
                    Ok(serving) => return serving,
                    // The system frees the port a moment later.
                    Err(HandlersError::Node { .. }) if began.elapsed() < HANG => sleep(RETRY_PAUSE).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let serving = serving.await.expect("starts");
        (Self(Some(runtime)), serving)
    }

    /// Ends all tasks of the server.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
