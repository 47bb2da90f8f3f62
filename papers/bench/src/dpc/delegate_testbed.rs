//! Hosts of a testbed with servers of every variant: a client on host 1, servers on the hosts after it.
//!
//! All servers run at once; idle ones only wait.

use std::time::Duration;

use anyhow::Result;
use pathcall_driver::node::NodeConfig;
use pathcall_testbed::Builder;

use super::plan::{Pattern, Servers, WorkPlan};
use super::variants::baseline::{self, Baseline};
use super::variants::nodes::{self, Nodes};
use super::variants::plain::{self, Hub, PlainHandler};
use super::variants::stubs::{self, Stubs};
use super::variants::{CallResults, CallVariant, calls};
use crate::testbed::{ElementTestbed, Hop, Party, WaitMode};

pub(super) struct DelegateTestbed {
    pub(super) nodes: Nodes,
    pub(super) baseline: Baseline,
    pub(super) stubs: Stubs,
    pub(super) hub: Hub,
    client: Party,
    _servers: Vec<Party>,
    /// Stage of the parties; dropped last.
    _stage: ElementTestbed,
}

impl DelegateTestbed {
    /// Starts all servers and the client, on a testbed with one host more than servers.
    pub(super) fn start(testbed: Builder, servers: usize, patterns: &[Pattern]) -> Result<Self> {
        let stage = ElementTestbed::start(testbed.hosts(1 + servers), Hop::NoElement)?;
        let plan = WorkPlan::new(patterns.to_vec())?;
        let (at_nodes, at_stubs) = (Servers::default(), Servers::default());
        let (mut parties, mut started) = (Vec::new(), (Vec::new(), Vec::new(), Vec::new(), Vec::new()));
        for k in 2..2 + servers {
            let (party, at) = (stage.host(k, WaitMode::Blocking, None)?, stage.free_at(k)?);
            let (plan, at_nodes, at_stubs) = (plan.clone(), at_nodes.clone(), at_stubs.clone());
            let (node, plain_node, stub, plain) = party.run(move || async move {
                let node = nodes::serve(&NodeConfig::default().listen(at), plan.clone(), at_nodes).await?;
                let plain_node = baseline::serve(at).await?;
                let stub = stubs::serve(at, plan.clone(), at_stubs).await?;
                Ok((node, plain_node, stub, plain::serve(at, plan).await?))
            })?;
            started.0.push(node);
            started.1.push(plain_node);
            started.2.push(stub);
            started.3.push(plain);
            parties.push(party);
        }
        at_nodes.set(started.0);
        at_stubs.set(started.2);
        let at_twins = Servers::default();
        at_twins.set(started.1);
        let (urls, handlers): (Vec<String>, Vec<PlainHandler>) = started.3.into_iter().unzip();
        for (party, handler) in parties.iter().zip(handlers) {
            let urls = urls.clone();
            party.run(move || async move { plain::connect_all(&handler, &urls) })?;
        }
        let (client, at) = (stage.host(1, WaitMode::Blocking, None)?, stage.free_at(1)?);
        let (nodes, baseline, stubs, hub) = client.run(move || async move {
            let nodes = Nodes::start(&NodeConfig::default().listen(at), plan.clone(), at_nodes).await?;
            let baseline = Baseline::start(at, plan.clone(), at_twins).await?;
            let stubs = Stubs::start(at, plan.clone(), &at_stubs).await?;
            Ok((nodes, baseline, stubs, Hub::start(plan, &urls)?))
        })?;
        Ok(Self { nodes, baseline, stubs, hub, client, _servers: parties, _stage: stage })
    }

    /// Makes calls of a shape from the client's host.
    pub(super) fn calls(
        &self,
        variant: &impl CallVariant,
        pattern: usize,
        count: usize,
        at_once: usize,
    ) -> Result<CallResults> {
        let variant = variant.clone();
        self.client.run(move || calls(variant, pattern, count, at_once))
    }

    /// Latencies of sequential calls, none of which may fail.
    pub(super) fn latencies(&self, variant: &impl CallVariant, pattern: usize, count: usize) -> Result<Vec<Duration>> {
        Ok(self.calls(variant, pattern, count, 1)?.whole()?.latencies)
    }
}
