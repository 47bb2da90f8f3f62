//! Stubs of the figures' services, and the handlers for runs without Pathcall.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use pathcall::types::FpArray;
use stock::Array;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

pub(crate) mod pb {
    pathcall::include_proto!("bench");
}
pub(crate) mod shadows {
    pathcall::include_proto!("shadows");
}
pub(crate) mod many {
    pathcall::include_proto!("many");
}
pub(crate) mod etcd {
    include!(concat!(env!("OUT_DIR"), "/etcdserverpb.rs"));
}
pub(crate) mod stock {
    include!(concat!(env!("OUT_DIR"), "/stock.rs"));
}

/// Handler that sums the arrays of all workers and answers their calls, in plain gRPC. The first array is the
/// accumulator, which avoids a copy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Adder(Arc<Mutex<Round>>);

#[derive(Debug, Default)]
struct Round {
    sums: Vec<f64>,
    waiting: Vec<oneshot::Sender<Vec<f64>>>,
}

impl Adder {
    async fn add(&self, workers: usize, values: Vec<f64>) -> Result<Vec<f64>, Status> {
        let waiting = {
            let mut round = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if round.waiting.is_empty() {
                round.sums = values;
            } else if round.sums.len() == values.len() {
                round.sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
            } else {
                return Err(Status::invalid_argument("arrays of one round have one length"));
            }
            if round.waiting.len() + 1 == workers {
                let Round { sums, waiting } = std::mem::take(&mut *round);
                for reply in waiting {
                    // A disconnected caller needs no answer.
                    let _ = reply.send(sums.clone());
                }
                return Ok(sums);
            }
            let (reply, waiting) = oneshot::channel();
            round.waiting.push(reply);
            waiting
        };
        waiting.await.map_err(|_| Status::cancelled("a worker left"))
    }
}

/// Stub of one worker, for any channel and codec.
pub(crate) trait Summer: Send + 'static {
    /// Adds an array to the arrays of the other workers; returns the sums.
    fn sum(&mut self, workers: usize, values: Vec<f64>) -> impl Future<Output = Result<Vec<f64>>> + Send;
}

macro_rules! sums {
    ($package:ident, $array:ident, $($channel:ty),+) => {
        #[tonic::async_trait]
        impl $package::sums_server::Sums for Adder {
            async fn two(&self, request: Request<$package::Part>) -> Result<Response<$package::Sum>, Status> {
                let data = self.add(2, request.into_inner().values.unwrap_or_default().data).await?;
                Ok(Response::new($package::Sum { values: Some($array { data }) }))
            }

            async fn four(&self, request: Request<$package::Part>) -> Result<Response<$package::Sum>, Status> {
                let data = self.add(4, request.into_inner().values.unwrap_or_default().data).await?;
                Ok(Response::new($package::Sum { values: Some($array { data }) }))
            }

            async fn eight(&self, request: Request<$package::Part>) -> Result<Response<$package::Sum>, Status> {
                let data = self.add(8, request.into_inner().values.unwrap_or_default().data).await?;
                Ok(Response::new($package::Sum { values: Some($array { data }) }))
            }
        }

        $(impl Summer for $package::sums_client::SumsClient<$channel> {
            async fn sum(&mut self, workers: usize, data: Vec<f64>) -> Result<Vec<f64>> {
                let part = $package::Part { values: Some($array { data }) };
                let sum = match workers {
                    2 => self.two(part).await?,
                    4 => self.four(part).await?,
                    8 => self.eight(part).await?,
                    _ => anyhow::bail!("unsupported number of workers: {workers}"),
                };
                Ok(sum.into_inner().values.unwrap_or_default().data)
            }
        })+
    };
}

sums!(pb, FpArray, Channel, pathcall::Channel);

// The element answers these calls, so no handler exists.
impl Summer for shadows::shadows_client::ShadowsClient<pathcall::Channel> {
    async fn sum(&mut self, workers: usize, data: Vec<f64>) -> Result<Vec<f64>> {
        let part = shadows::Part { values: Some(FpArray { data }) };
        let sum = match workers {
            2 => self.two(part).await?,
            4 => self.four(part).await?,
            _ => anyhow::bail!("unsupported number of workers: {workers}"),
        };
        Ok(sum.into_inner().values.unwrap_or_default().data)
    }
}

sums!(stock, Array, Channel);
