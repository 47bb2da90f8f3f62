//! The servers: each follows rays through its slab, and passes them on to who has the slab that they enter.

use std::collections::BTreeMap;
use std::sync::Arc;

use pathcall::delegate::{Call, Directory, Handlers};
use tonic::Status;

use crate::pb::delegated::{RaysAdvance, RaysTrace};
use crate::pb::{Advanced, Batch, Pixels};
use crate::ray::{Next, Ray, STATE, Slab};
use crate::scene::Slabs;

/// Names of servers begin with this; the slab's number follows.
pub(crate) const SLAB: &str = "slab-";
/// Bounces beyond these are not followed, whatever a request says.
pub(crate) const BOUNCES_MAX: u32 = 8;

/// The handlers of the server of this slab.
pub(crate) fn handlers(slabs: Slabs, number: usize, directory: &Directory) -> Handlers {
    let slab = Arc::new(Slab::new(slabs, number));
    let tracing = Arc::clone(&slab);
    let trace = move |batch, call| trace(Arc::clone(&tracing), batch, call);
    let advance = move |batch, call| advance(Arc::clone(&slab), batch, call);
    let handlers = Handlers::new().directory(directory.clone());
    handlers.handle::<RaysTrace, _, _>(trace).handle::<RaysAdvance, _, _>(advance)
}

async fn trace(slab: Arc<Slab>, batch: Batch, call: Call<Pixels>) -> Result<(), Status> {
    let (pixels, leaving) = aside(slab, batch).await?;
    for (next, batch) in leaving {
        call.delegate::<RaysTrace>(&*format!("{SLAB}{next}"), &batch)?;
    }
    if !pixels.pixels.is_empty() {
        call.reply(pixels).await?;
    }
    Ok(())
}

async fn advance(slab: Arc<Slab>, batch: Batch, call: Call<Advanced>) -> Result<(), Status> {
    let (pixels, leaving) = aside(slab, batch).await?;
    for (next, batch) in leaving {
        call.reply(Advanced { rays: Some(batch), slab: next as u32, pixels: None }).await?;
    }
    if !pixels.pixels.is_empty() {
        call.reply(Advanced { rays: None, slab: 0, pixels: Some(pixels) }).await?;
    }
    Ok(())
}

/// Follows rays in a thread of their own: this one's node answers in the meantime who asks whether it is alive.
async fn aside(slab: Arc<Slab>, batch: Batch) -> Result<(Pixels, BTreeMap<usize, Batch>), Status> {
    let followed = tokio::task::spawn_blocking(move || follow(&slab, &batch)).await;
    followed.map_err(|error| Status::internal(error.to_string()))?
}

/// Follows rays through a slab: the pixels of those that ended, and the others by the slab that they enter.
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
    fn a_batch_of_another_shape_is_refused() {
        let mut batch = Batch { pixels: vec![1, 2], bounces: vec![0, 0], state: vec![f64::NAN; 2 * STATE] };
        let slab = Slab::new(Slabs(2), 0);
        follow(&slab, &batch).expect("of the right shape; numbers that are none end somewhere");
        batch.state.pop();
        let status = follow(&slab, &batch).expect_err("a number is lacking");
        let says = "a batch of 2 rays: expected 2 counts of bounces and 34 numbers, got 2 and 33";
        assert_eq!(status.message(), says);
    }
}
