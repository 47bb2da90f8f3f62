//! Hosts of a testbed with servers of every way: a client on host 1, servers on those after it.
//!
//! All servers run at once; those of a way that nobody calls only wait.

use std::time::Duration;

use anyhow::Result;
use pathcall_testbed::Builder;

use super::plan::{Pattern, Plan, Servers};
use super::ways::nodes::{self, Nodes};
use super::ways::plain::{self, Handler, Hub};
use super::ways::stubs::{self, Stubs};
use super::ways::twins::{self, Twins};
use super::ways::{Turn, Way, calls};
use crate::bed::{Hop, Party, Stage, Waiting};

pub(super) struct Field {
    pub(super) nodes: Nodes,
    pub(super) twins: Twins,
    pub(super) stubs: Stubs,
    pub(super) hub: Hub,
    client: Party,
    _servers: Vec<Party>,
    /// After who lives on it.
    _stage: Stage,
}

impl Field {
    /// On a bed of one host more than there are servers.
    pub(super) fn start(bed: Builder, servers: usize, patterns: &[Pattern]) -> Result<Self> {
        let stage = Stage::start(bed.hosts(1 + servers), Hop::Nothing)?;
        let plan = Plan::new(patterns.to_vec())?;
        let (at_nodes, at_stubs) = (Servers::default(), Servers::default());
        let (mut parties, mut started) = (Vec::new(), (Vec::new(), Vec::new(), Vec::new(), Vec::new()));
        for k in 2..2 + servers {
            let (party, at) = (stage.host(k, Waiting::Blocking, None)?, stage.free_at(k)?);
            let (plan, at_nodes, at_stubs) = (plan.clone(), at_nodes.clone(), at_stubs.clone());
            let (node, twin, stub, plain) = party.run(move || async move {
                let node = nodes::serve(at, plan.clone(), at_nodes).await?;
                let twin = twins::serve(at).await?;
                let stub = stubs::serve(at, plan.clone(), at_stubs).await?;
                Ok((node, twin, stub, plain::serve(at, plan).await?))
            })?;
            started.0.push(node);
            started.1.push(twin);
            started.2.push(stub);
            started.3.push(plain);
            parties.push(party);
        }
        at_nodes.are(started.0);
        at_stubs.are(started.2);
        let at_twins = Servers::default();
        at_twins.are(started.1);
        let (urls, handlers): (Vec<String>, Vec<Handler>) = started.3.into_iter().unzip();
        for (party, handler) in parties.iter().zip(handlers) {
            let urls = urls.clone();
            party.run(move || async move { plain::meet(&handler, &urls) })?;
        }
        let (client, at) = (stage.host(1, Waiting::Blocking, None)?, stage.free_at(1)?);
        let (nodes, twins, stubs, hub) = client.run(move || async move {
            let nodes = Nodes::start(at, plan.clone(), at_nodes).await?;
            let twins = Twins::start(at, plan.clone(), at_twins).await?;
            let stubs = Stubs::start(at, plan.clone(), &at_stubs).await?;
            Ok((nodes, twins, stubs, Hub::start(plan, &urls)?))
        })?;
        Ok(Self { nodes, twins, stubs, hub, client, _servers: parties, _stage: stage })
    }

    /// Makes calls of a shape from the client's host.
    pub(super) fn calls(&self, way: &impl Way, pattern: usize, count: usize, at_once: usize) -> Result<Turn> {
        let way = way.clone();
        self.client.run(move || calls(way, pattern, count, at_once))
    }

    /// What calls took, one after the other, none of which failed.
    pub(super) fn took(&self, way: &impl Way, pattern: usize, count: usize) -> Result<Vec<Duration>> {
        Ok(self.calls(way, pattern, count, 1)?.whole()?.took)
    }
}
