//! Client of plain gRPC servers: each call goes to a random server, and is hedged if the client says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use apps_load::Random;
use apps_report::call_path::tonic_channel;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::cluster::{RequestCounts, ask};
use crate::load::ReadCall;
use crate::pb::Object;
use crate::pb::kv_client::KvClient;

/// Client of plain gRPC servers.
///
/// With a hedging delay, it does what gRPC's `hedgingPolicy` with `maxAttempts: 2` says (gRFC A6): a call without an
/// answer after `hedgingDelay` is sent again, at once if its first attempt failed as UNAVAILABLE. The first good answer
/// counts, and the other attempt is cancelled. tonic has no such policy. The second attempt never goes to the first
/// one's server, as good a choice as gRPC's balancers may make.
#[derive(Debug, Clone)]
pub struct PlainClient {
    stubs: Arc<[KvClient<Channel>]>,
    hedging_delay: Option<Duration>,
    calls: Arc<AtomicU64>,
    hedged: Arc<AtomicU64>,
}

impl PlainClient {
    /// Connects to all servers.
    ///
    /// # Errors
    /// Returns an error if a server does not answer.
    pub async fn connect(urls: &[String]) -> Result<Self> {
        let mut stubs = Vec::new();
        for url in urls {
            let channel = tonic_channel(url.clone()).await;
            stubs.push(KvClient::new(channel.with_context(|| format!("cannot connect to plain server {url}"))?));
        }
        Ok(Self { stubs: stubs.into(), hedging_delay: None, calls: Arc::default(), hedged: Arc::default() })
    }

    /// Client of the same servers that hedges calls after this delay, with counts of its own.
    #[must_use]
    pub fn hedging(&self, delay: Duration) -> Self {
        Self { stubs: self.stubs.clone(), hedging_delay: Some(delay), calls: Arc::default(), hedged: Arc::default() }
    }

    /// Request counts; `None` without hedging, which sends each call once.
    #[must_use]
    pub fn sent(&self) -> Option<RequestCounts> {
        self.hedging_delay?;
        let (calls, extra) = (self.calls.load(Ordering::Relaxed), self.hedged.load(Ordering::Relaxed));
        Some(RequestCounts { calls, extra, redundant: 0 })
    }

    /// Makes call number `nth`, which decides its servers.
    pub(crate) async fn read(&self, nth: u64, read: ReadCall) -> Result<Vec<Object>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (mut random, servers) = (Random::new(nth), self.stubs.len() as u64);
        let first = random.below(servers);
        let at = |server: u64| ask(self.stubs[server as usize].clone(), read);
        let Some(delay) = self.hedging_delay.filter(|_| servers > 1) else { return at(first).await };
        let mut original = std::pin::pin!(at(first));
        tokio::select! {
            biased;
            answer = &mut original => match answer {
                Err(status) if status.code() == Code::Unavailable => {}
                answer => return answer,
            },
            () = tokio::time::sleep(delay) => {
                self.hedged.fetch_add(1, Ordering::Relaxed);
                let mut hedge = std::pin::pin!(at(other_than(first, &mut random, servers)));
                return tokio::select! {
                    biased;
                    answer = &mut original => if answer.is_ok() { answer } else { hedge.await },
                    answer = &mut hedge => if answer.is_ok() { answer } else { original.await },
                };
            }
        }
        self.hedged.fetch_add(1, Ordering::Relaxed);
        at(other_than(first, &mut random, servers)).await
    }
}

/// Random server other than this one.
fn other_than(first: u64, random: &mut Random, servers: u64) -> u64 {
    (first + 1 + random.below(servers - 1)) % servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_server_is_any_other() {
        let mut random = Random::new(5);
        for first in 0..4 {
            let mut seen: Vec<u64> = (0..200).map(|_| other_than(first, &mut random, 4)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, (0..4).filter(|server| *server != first).collect::<Vec<_>>());
        }
    }
}
