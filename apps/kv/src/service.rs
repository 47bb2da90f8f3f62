//! Handler of the service: a store, with waits that emulate the work of a real server.

use std::sync::{Arc, Mutex, PoisonError};

use apps_load::{Jitter, Random, Service};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::objects::{key, number};
use crate::pb::kv_server::Kv;
use crate::pb::{Done, Key, Keys, Object, Objects};
use crate::store::{Store, StoreError};

/// Limit of objects in a scan.
const SCAN_MAX: u32 = 1000;

/// Emulated service times of a server. A server sleeps, so that many servers can share few processors; the runtime's
/// timers round up to whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Service time of an object.
    pub get: Service,
    /// Service time of a scan.
    pub scan: Service,
    /// Jitter of both.
    pub jitter: Jitter,
}

/// Handler of one server.
#[derive(Debug, Clone)]
pub struct KvService {
    store: Store,
    waits: Option<(Waits, Arc<Mutex<Random>>)>,
    /// Queue where the layer has none: calls wait in order for one of the workers.
    workers: Option<Arc<Semaphore>>,
}

impl KvService {
    /// Handler of this store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, waits: None, workers: None }
    }

    /// Adds waits before each answer, drawn from `seed`.
    #[must_use]
    pub fn waits(self, waits: Option<Waits>, seed: u64) -> Self {
        Self { waits: waits.map(|waits| (waits, Arc::new(Mutex::new(Random::new(seed))))), ..self }
    }

    /// Limits concurrent calls, for plain gRPC: with Pathcall, the layer has the queue.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(Arc::new(Semaphore::new(workers))), ..self }
    }

    /// Waits for a worker and for the service time, then runs the work.
    async fn serve<T>(
        &self,
        wait: impl FnOnce(&Waits) -> Service,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let _worker = match &self.workers {
            Some(workers) => Some(workers.acquire().await.map_err(|_| Status::unavailable("the server is stopping"))?),
            None => None,
        };
        if let Some((waits, random)) = &self.waits {
            let time = {
                let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
                let time = wait(waits).draw(&mut random);
                waits.jitter.draw(time, &mut random)
            };
            tokio::time::sleep(time).await;
        }
        work.await.map(Response::new)
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn get(&self, request: Request<Key>) -> Result<Response<Object>, Status> {
        let key = request.into_inner().key;
        let work = async {
            let value = self.store.get(&key).await.map_err(failed)?;
            let missing = || Status::not_found(format!("no object {:?}", String::from_utf8_lossy(&key)));
            Ok(Object { value: value.ok_or_else(missing)?, key: key.clone() })
        };
        self.serve(|waits| waits.get, work).await
    }

    async fn scan(&self, request: Request<Keys>) -> Result<Response<Objects>, Status> {
        let Keys { first, count } = request.into_inner();
        let Some(first) = number(&first) else {
            return Err(Status::invalid_argument(format!("expected key-NNNNNNNNNNNN, got {first:?}")));
        };
        if count > SCAN_MAX {
            return Err(Status::invalid_argument(format!("at most {SCAN_MAX} objects in a scan, got {count}")));
        }
        let work = async {
            let keys: Vec<_> = (first..first + u64::from(count)).map(key).collect();
            let values = self.store.get_all(&keys).await.map_err(failed)?;
            let there = keys.into_iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
            let objects = there.map(|(key, value)| Object { key: key.to_vec(), value });
            Ok(Objects { objects: objects.collect() })
        };
        self.serve(|waits| waits.scan, work).await
    }

    async fn put(&self, request: Request<Object>) -> Result<Response<Done>, Status> {
        let Object { key, value } = request.into_inner();
        self.store.put(&key, &value).await.map_err(failed)?;
        Ok(Response::new(Done {}))
    }
}

fn failed(error: StoreError) -> Status {
    Status::unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::objects::value;

    async fn service() -> KvService {
        let store = Store::memory();
        store.fill(50).await.expect("filled");
        KvService::new(store)
    }

    #[tokio::test]
    async fn present_objects_are_read_and_missing_reported() {
        let service = service().await;
        let get = async |number| service.get(Request::new(Key { key: key(number).to_vec() })).await;
        assert_eq!(get(7).await.expect("there").into_inner().value, value(7));
        assert_eq!(get(50).await.expect_err("not there").code(), tonic::Code::NotFound);
        let scan = async |first: &[u8], count| service.scan(Request::new(Keys { first: first.to_vec(), count })).await;
        let objects = scan(&key(48), 100).await.expect("there").into_inner().objects;
        assert_eq!(objects.iter().map(|object| number(&object.key)).collect::<Vec<_>>(), [Some(48), Some(49)]);
        assert_eq!(scan(b"x", 1).await.expect_err("no key").code(), tonic::Code::InvalidArgument);
        assert_eq!(scan(&key(0), 1001).await.expect_err("many").code(), tonic::Code::InvalidArgument);
    }

    #[tokio::test]
    async fn concurrency_limit_and_waits_are_applied() {
        let fixed = Service::Fixed(Duration::from_millis(10));
        let waits = Waits { get: fixed, scan: fixed, jitter: Jitter::NONE };
        let service = service().await.waits(Some(waits), 1).workers(2);
        let began = Instant::now();
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let service = service.clone();
                tokio::spawn(async move { service.get(Request::new(Key { key: key(n).to_vec() })).await })
            })
            .collect();
        for call in calls {
            call.await.expect("the task succeeds").expect("there");
        }
        // Three calls in sequence by each of two workers.
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(30), "{took:?}");
    }
}
