//! Servers of the rendering: each follows rays through its slab, and passes them on to the server of the next slab.

use std::collections::BTreeMap;
use std::sync::Arc;

use pathcall::delegate::{DelegatedCall, Directory, Handlers};
use tonic::Status;

use crate::pb::delegated::{RaysAdvance, RaysTrace};
use crate::pb::{Advanced, Batch, Pixels};
use crate::ray::{Next, Ray, STATE, Slab};
use crate::scene::Slabs;

/// Prefix of servers' names, before the slab's number.
pub(crate) const SLAB: &str = "slab-";
/// Limit of bounces, whatever a request asks for.
pub(crate) const BOUNCES_MAX: u32 = 8;

/// Handlers of the server of this slab.
pub(crate) fn handlers(slabs: Slabs, number: usize, directory: &Directory) -> Handlers {
    let slab = Arc::new(Slab::new(slabs, number));
    let tracing = Arc::clone(&slab);
    let trace = move |batch, call| trace(Arc::clone(&tracing), batch, call);
    let advance = move |batch, call| advance(Arc::clone(&slab), batch, call);
    let handlers = Handlers::new().directory(directory.clone());
    handlers.handle::<RaysTrace, _, _>(trace).handle::<RaysAdvance, _, _>(advance)
}

async fn trace(slab: Arc<Slab>, batch: Batch, call: DelegatedCall<Pixels>) -> Result<(), Status> {
    let (pixels, leaving) = follow_in_thread(slab, batch).await?;
    for (next, batch) in leaving {
        call.delegate::<RaysTrace>(&*format!("{SLAB}{next}"), &batch)?;
    }
    if !pixels.pixels.is_empty() {
        call.reply(pixels).await?;
    }
    Ok(())
}

async fn advance(slab: Arc<Slab>, batch: Batch, call: DelegatedCall<Advanced>) -> Result<(), Status> {
    let (pixels, leaving) = follow_in_thread(slab, batch).await?;
    for (next, batch) in leaving {
        call.reply(Advanced { rays: Some(batch), slab: next as u32, pixels: None }).await?;
    }
    if !pixels.pixels.is_empty() {
        call.reply(Advanced { rays: None, slab: 0, pixels: Some(pixels) }).await?;
    }
    Ok(())
}

/// Follows rays in a separate thread, while the node answers pings.
async fn follow_in_thread(slab: Arc<Slab>, batch: Batch) -> Result<(Pixels, BTreeMap<usize, Batch>), Status> {
    let followed = tokio::task::spawn_blocking(move || follow(&slab, &batch)).await;
    followed.map_err(|error| Status::internal(error.to_string()))?
}

/// Follows rays through a slab. Returns the pixels of the finished rays, and the other rays by next slab.
fn follow(slab: &Slab, batch: &Batch) -> Result<(Pixels, BTreeMap<usize, Batch>), Status> {
    let (mut pixels, mut leaving) = (Pixels::default(), BTreeMap::<usize, Batch>::new());
    for mut ray in batch.rays()? {
        match slab.advance(&mut ray) {
            Next::Over => {
                pixels.pixels.push(ray.pixel);
                pixels.colours.extend(ray.rgb());
            }
            Next::Slab(next) => leaving.entry(next).or_default().push(&ray),
        }
    }
    Ok((pixels, leaving))
}

impl Batch {
    pub(crate) fn push(&mut self, ray: &Ray) {
        self.pixels.push(ray.pixel);
        self.bounces.push(ray.bounces);
        self.state.extend(ray.state());
    }

    fn rays(&self) -> Result<impl Iterator<Item = Ray>, Status> {
        let (states, rest) = self.state.as_chunks::<STATE>();
        let [rays, bounces] = [self.pixels.len(), self.bounces.len()];
        if !rest.is_empty() || states.len() != rays || bounces != rays {
            return Err(Status::invalid_argument(format!(
                "a batch of {rays} rays: expected {rays} counts of bounces and {} numbers, got {bounces} and {}",
                rays * STATE,
                self.state.len()
            )));
        }
        let rays = self.pixels.iter().zip(&self.bounces).zip(states);
        Ok(rays.map(|((pixel, bounces), state)| Ray::with(*pixel, (*bounces).min(BOUNCES_MAX), state)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_batch_is_refused() {
        let mut batch = Batch { pixels: vec![1, 2], bounces: vec![0, 0], state: vec![f64::NAN; 2 * STATE] };
        let slab = Slab::new(Slabs(2), 0);
        follow(&slab, &batch).expect("a batch of the right shape");
        batch.state.pop();
        let status = follow(&slab, &batch).expect_err("a batch with a missing number");
        let says = "a batch of 2 rays: expected 2 counts of bounces and 34 numbers, got 2 and 33";
        assert_eq!(status.message(), says);
    }
}
