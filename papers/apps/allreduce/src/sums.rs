//! Sums of hosts through *map*: an element adds up the values on the path, or the server does.
//!
//! Values are rounded to the filter's precision, six decimals, and added as integers. The server computes sums that
//! exceed 32 bits. Infinities and NaN have no fixed-point form and are rejected.

use anyhow::{Context as _, Result, bail, ensure};
use apps_report::call_path::Lanes;
use pathcall::types::FpArray;
use tokio::runtime::Runtime;
use tonic::{Request, Response, Status};

use crate::pb::sums_client::SumsClient;
use crate::pb::{PATHCALL, Part, Total};

/// Values per call. Calls run one after the other, because the n-th call of each host belongs to the same sum.
const PART: usize = 64 << 10;
/// Precision of the filter, as a factor.
pub const SCALE: f64 = 1e6;
/// Largest magnitude of a value, so that no sum exceeds 64 bits.
pub const MAGNITUDE_MAX: f64 = 1e12;

/// Client of a leader.
#[derive(Debug)]
pub struct Sums {
    runtime: Runtime,
    channel: pathcall::Channel,
    hosts: usize,
}

impl Sums {
    /// Connects to the server of the sums.
    ///
    /// # Errors
    /// Returns an error if there is no server, or no filter for this number of hosts (2, 4 or 8).
    pub fn connect(url: &str, hosts: usize) -> Result<Self> {
        ensure!([2, 4, 8].contains(&hosts), "map cannot sum over {hosts} hosts: use 2, 4 or 8 hosts, or --across ring");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let url = url.to_owned();
        let channel = runtime.block_on(pathcall::Channel::connect(url.clone(), &PATHCALL));
        let channel = channel.with_context(|| format!("cannot connect to the server of sums at {url}"))?;
        Ok(Self { runtime, channel, hosts })
    }

    /// Replaces each value by its sum over all hosts, with the same bits at all of them. All hosts call this function
    /// in the same order.
    ///
    /// # Errors
    /// Returns an error if a call fails, or if a value is not finite or greater than [`MAGNITUDE_MAX`].
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        let fits = |value: &f32| value.is_finite() && f64::from(value.abs()) <= MAGNITUDE_MAX;
        if let Some(at) = values.iter().position(|value| !fits(value)) {
            bail!(
                "value {at} is {}: map sums values of magnitude {MAGNITUDE_MAX:e} at most; use --across ring",
                values[at]
            );
        }
        for part in values.chunks_mut(PART) {
            let data = part.iter().map(|value| f64::from(*value)).collect();
            let call = call(SumsClient::new(self.channel.clone()), self.hosts, data);
            let sums = self.runtime.block_on(call)?;
            ensure!(sums.len() == part.len(), "received {} sums for {} values", sums.len(), part.len());
            part.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum as f32);
        }
        Ok(())
    }

    /// Share of the values that an element added up, 0 to 1.
    #[must_use]
    pub fn element_share(&self) -> Option<f64> {
        let mut lanes = Lanes::default();
        lanes.count(&self.channel);
        lanes.share()
    }
}

/// Service of the sums, and owner of their map. The handlers are never called, because every field of the calls is in
/// the map.
#[derive(Debug, Clone, Copy)]
pub struct SumsHandler;

#[tonic::async_trait]
impl crate::pb::sums_server::Sums for SumsHandler {
    async fn of2(&self, _: Request<Part>) -> Result<Response<Total>, Status> {
        Err(Status::unimplemented(PLAIN))
    }

    async fn of4(&self, _: Request<Part>) -> Result<Response<Total>, Status> {
        Err(Status::unimplemented(PLAIN))
    }

    async fn of8(&self, _: Request<Part>) -> Result<Response<Total>, Status> {
        Err(Status::unimplemented(PLAIN))
    }
}

const PLAIN: &str = "sums are for Pathcall's channels";

async fn call(mut client: SumsClient<pathcall::Channel>, hosts: usize, data: Vec<f64>) -> Result<Vec<f64>> {
    let part = Part { values: Some(FpArray { data }) };
    let total = match hosts {
        2 => client.of2(part).await,
        4 => client.of4(part).await,
        _ => client.of8(part).await,
    };
    Ok(total?.into_inner().values.unwrap_or_default().data)
}
