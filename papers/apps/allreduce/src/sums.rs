//! Hosts through *map*: an element adds their values up as they pass, or the server does.
//!
//! Values are rounded to the filter's precision, six digits behind the point, and added up as integers; sums that 32 bits
//! do not hold are the server's. What is not a finite number can't be said so, and is refused.

use anyhow::{Context as _, Result, bail, ensure};
use apps_report::way::Lanes;
use pathcall::types::FpArray;
use tokio::runtime::Runtime;
use tonic::{Request, Response, Status};

use crate::pb::sums_client::SumsClient;
use crate::pb::{PATHCALL, Part, Total};

/// Values of a call. One is made after the other, for each host's first goes with the other hosts' first.
const PART: usize = 64 << 10;
/// The filter's precision, as a factor.
pub const SCALE: f64 = 1e6;
/// Greatest magnitude of a value that can be added up: so that no sum of hosts' leaves 64 bits.
pub const MAGNITUDE_MAX: f64 = 1e12;

/// A leader's end.
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
    /// There is none, or there is no filter for so many hosts: 2, 4 and 8.
    pub fn connect(url: &str, hosts: usize) -> Result<Self> {
        ensure!([2, 4, 8].contains(&hosts), "{hosts} hosts can't add up by map: 2, 4 or 8 can, others by a ring");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let url = url.to_owned();
        let channel = runtime.block_on(pathcall::Channel::connect(url.clone(), &PATHCALL));
        let channel = channel.with_context(|| format!("no server of sums at {url}"))?;
        Ok(Self { runtime, channel, hosts })
    }

    /// Each value becomes the sum of all hosts', the same bits at all of them. All hosts call it, in the same order.
    ///
    /// # Errors
    /// A call fails; a value is not finite, or greater than [`MAGNITUDE_MAX`].
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        let fits = |value: &f32| value.is_finite() && f64::from(value.abs()) <= MAGNITUDE_MAX;
        if let Some(at) = values.iter().position(|value| !fits(value)) {
            bail!("value {at} is {}: map adds up numbers of {MAGNITUDE_MAX:e} at most; take the ring", values[at]);
        }
        for part in values.chunks_mut(PART) {
            let data = part.iter().map(|value| f64::from(*value)).collect();
            let call = call(SumsClient::new(self.channel.clone()), self.hosts, data);
            let sums = self.runtime.block_on(call)?;
            ensure!(sums.len() == part.len(), "{} sums of {} values", sums.len(), part.len());
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

/// Who serves the sums: the owner of their map. Handlers are never asked, for all that calls have is in the map.
#[derive(Debug, Clone, Copy)]
pub struct Handler;

#[tonic::async_trait]
impl crate::pb::sums_server::Sums for Handler {
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
