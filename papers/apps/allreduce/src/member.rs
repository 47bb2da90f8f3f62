//! One rank.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use pathcall_place::device::Device;
use pathcall_place::reduce::{AllReduce, Buffer, Config, Group, Op};

use crate::add::{Adder, append};
use crate::ring::Ring;
use crate::sums::Sums;

/// Values of a part of a host's ranks, at most: 64 KiB.
const PART: usize = 16 << 10;

/// How a host's leader adds up with those of other hosts.
#[derive(Debug)]
pub enum Across {
    /// There is no other host, or this rank does not lead.
    Nobody,
    /// Parts go around.
    Ring(Box<Ring>),
    /// By *map*.
    Map(Sums),
}

/// What all ranks of a host have to know alike.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where they meet, and which rank this is. Rank 0 leads.
    pub group: Config,
    /// Values of each.
    pub values: usize,
    /// Whether the leader has a device for parts of its host's values.
    pub device: bool,
    /// Whether there are other hosts.
    pub others: bool,
}

/// A rank of a host.
#[derive(Debug)]
pub struct Member {
    group: Group,
    values: Buffer<f32>,
    setup: Setup,
    adder: Option<Adder>,
    across: Across,
}

impl Member {
    /// Meets the other ranks of its host. The leader has a device, if so it was set up, and says how it adds up with
    /// others.
    ///
    /// # Errors
    /// A rank does not come, there is no memory, or the device can't add up.
    pub fn join(setup: Setup, device: Option<Arc<dyn Device>>, across: Across) -> Result<Self> {
        let mut group = Group::join(&setup.group).with_context(|| format!("no group `{}`", setup.group.name))?;
        let values = group.buffer(setup.values)?;
        let adder = device.map(|device| Adder::new(device, setup.group.ranks, PART)).transpose()?;
        Ok(Self { group, values, setup, adder, across })
    }

    /// This rank's values: in memory that its host's ranks share.
    pub fn values(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Each value becomes the sum of all ranks' of all hosts.
    ///
    /// # Errors
    /// A rank or a host is lost, or has another number of values.
    pub fn all_reduce(&mut self) -> Result<()> {
        if self.setup.device {
            self.in_host_with_device()?;
        } else {
            self.group.all_reduce(&mut self.values, Op::Sum)?;
        }
        match &mut self.across {
            Across::Nobody => {}
            Across::Ring(ring) => ring.all_reduce(&mut self.values)?,
            Across::Map(sums) => sums.all_reduce(&mut self.values)?,
        }
        if self.setup.others { self.spread() } else { Ok(()) }
    }

    /// Parts of this host's values that the device has added up.
    #[must_use]
    pub fn parts_on_device(&self) -> u64 {
        self.adder.as_ref().map_or(0, |adder| adder.parts)
    }

    /// What this rank, if it leads, adds up with others by.
    #[must_use]
    pub fn across(&self) -> &Across {
        &self.across
    }

    /// Ranks claim parts; the leader has its device do those that it claims, the others their processors.
    fn in_host_with_device(&mut self) -> Result<()> {
        let (ranks, adder) = (self.group.ranks(), &mut self.adder);
        let mut sum = Vec::new();
        self.group.share(&mut self.values, Op::Sum, |mut part| {
            let done = adder.as_mut().map(|adder| {
                let mut rows = (ranks as u32).to_le_bytes().to_vec();
                (0..ranks).for_each(|rank| append(part.row(rank), &mut rows));
                sum.resize(part.row(0).len(), 0.0);
                adder.add(rows.into(), &mut sum)
            });
            if let Some(Ok(())) = done {
                part.row(0).copy_from_slice(&sum);
            } else {
                // A device that has failed is asked no more: this rank's processor does it.
                *adder = None;
                for rank in 1..ranks {
                    let (sum, row) = part.two(0, rank);
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
                }
            }
            for rank in 1..ranks {
                let (first, other) = part.two(0, rank);
                other.copy_from_slice(first);
            }
        })?;
        Ok(())
    }

    /// What the leader has becomes what all of its host have.
    fn spread(&mut self) -> Result<()> {
        let ranks = self.group.ranks();
        self.group.share(&mut self.values, Op::Max, |mut part| {
            for rank in 1..ranks {
                let (first, other) = part.two(0, rank);
                other.copy_from_slice(first);
            }
        })?;
        Ok(())
    }
}
