//! Servers that are killed in the middle of whatever they do, and others in their place.

use std::time::{Duration, Instant};

use pathcall_rpc::delegate::{Handlers, NodeConfig, Serving, StartError};
use pathcall_test_support::HANG;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Pause between two attempts.
const LOOK: Duration = Duration::from_millis(1);

/// A server with a runtime of its own, all of which ends at once.
pub struct Process(Option<Runtime>);

impl Process {
    /// Starts it there as soon as the address is free.
    pub async fn start(config: NodeConfig, set_up: impl Fn(Handlers) -> Handlers + Send + 'static) -> (Self, Serving) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let serving = runtime.spawn(async move {
            let began = Instant::now();
            loop {
                match set_up(Handlers::new().node(config.clone())).start().await {
                    Ok(serving) => return serving,
                    // The system takes its time to free the port.
                    Err(StartError::Node { .. }) if began.elapsed() < HANG => sleep(LOOK).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let serving = serving.await.expect("starts");
        (Self(Some(runtime)), serving)
    }

    /// Ends all of it.
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
