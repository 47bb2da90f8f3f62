//! Rank of an all-reduce.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use pathcall_place::device::ComputeDevice;
use pathcall_place::reduce::{AllReduce, Config, Group, ReduceOp, SharedBuffer};

use crate::add::{Adder, append};
use crate::ring::Ring;
use crate::sums::Sums;

/// Maximum number of values in a part of a host's ranks: 64 KiB.
const PART: usize = 16 << 10;

/// Exchange between the leader of a host and the leaders of other hosts.
#[derive(Debug)]
pub enum HostExchange {
    /// No exchange: there is one host, or the rank is no leader.
    NoExchange,
    /// Ring of hosts.
    Ring(Box<Ring>),
    /// Sums through *map*.
    Map(Sums),
}

/// Configuration that all ranks of a host share.
#[derive(Debug, Clone)]
pub struct MemberConfig {
    /// Group of ranks, with the number of this rank. Rank 0 leads.
    pub group: Config,
    /// Values per rank.
    pub values: usize,
    /// True if the leader has a device for parts of its host.
    pub device: bool,
    /// True if there are other hosts.
    pub others: bool,
}

/// Rank of a host.
#[derive(Debug)]
pub struct Member {
    group: Group,
    values: SharedBuffer<f32>,
    setup: MemberConfig,
    adder: Option<Adder>,
    exchange: HostExchange,
}

impl Member {
    /// Joins the group of the host's ranks. The leader passes its device, if [`MemberConfig::device`] is set, and its
    /// exchange with other hosts.
    ///
    /// # Errors
    /// Returns an error if a rank does not join, if memory is lacking, or if the device cannot add up values.
    pub fn join(setup: MemberConfig, device: Option<Arc<dyn ComputeDevice>>, exchange: HostExchange) -> Result<Self> {
        let mut group =
            Group::join(&setup.group).with_context(|| format!("cannot join group `{}`", setup.group.name))?;
        let values = group.buffer(setup.values)?;
        let adder = device.map(|device| Adder::new(device, setup.group.ranks, PART)).transpose()?;
        Ok(Self { group, values, setup, adder, exchange })
    }

    /// Values of this rank, in memory that the ranks of the host share.
    pub fn values(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Replaces each value by its sum over all ranks of all hosts.
    ///
    /// # Errors
    /// Returns an error if a rank or a host is lost, or has another number of values.
    pub fn all_reduce(&mut self) -> Result<()> {
        if self.setup.device {
            self.reduce_in_host_with_device()?;
        } else {
            self.group.all_reduce(&mut self.values, ReduceOp::Sum)?;
        }
        match &mut self.exchange {
            HostExchange::NoExchange => {}
            HostExchange::Ring(ring) => ring.all_reduce(&mut self.values)?,
            HostExchange::Map(sums) => sums.all_reduce(&mut self.values)?,
        }
        if self.setup.others { self.broadcast() } else { Ok(()) }
    }

    /// Parts of this host's values that the device added up.
    #[must_use]
    pub fn parts_on_device(&self) -> u64 {
        self.adder.as_ref().map_or(0, |adder| adder.parts)
    }

    /// Exchange with other hosts.
    #[must_use]
    pub fn exchange(&self) -> &HostExchange {
        &self.exchange
    }

    /// Adds up the host's values: ranks claim parts, the leader's device adds the leader's parts, and processors add
    /// the others.
    fn reduce_in_host_with_device(&mut self) -> Result<()> {
        let (ranks, adder) = (self.group.ranks(), &mut self.adder);
        let mut sum = Vec::new();
        self.group.process_buffer(&mut self.values, ReduceOp::Sum, |mut part| {
            let done = adder.as_mut().map(|adder| {
                let mut rows = (ranks as u32).to_le_bytes().to_vec();
                (0..ranks).for_each(|rank| append(part.row(rank), &mut rows));
                sum.resize(part.row(0).len(), 0.0);
                adder.add(rows.into(), &mut sum)
            });
            if let Some(Ok(())) = done {
                part.row(0).copy_from_slice(&sum);
            } else {
                // Stops using a failed device; this rank's processor takes over.
                *adder = None;
                for rank in 1..ranks {
                    let (sum, row) = part.two_rows(0, rank);
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += *value);
                }
            }
            for rank in 1..ranks {
                let (first, other) = part.two_rows(0, rank);
                other.copy_from_slice(first);
            }
        })?;
        Ok(())
    }

    /// Copies the leader's values to all ranks of the host.
    fn broadcast(&mut self) -> Result<()> {
        let ranks = self.group.ranks();
        self.group.process_buffer(&mut self.values, ReduceOp::Max, |mut part| {
            for rank in 1..ranks {
                let (first, other) = part.two_rows(0, rank);
                other.copy_from_slice(first);
            }
        })?;
        Ok(())
    }
}
