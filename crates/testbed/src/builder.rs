//! Builder of testbeds.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;
use crate::guard::Guard;
use crate::plan::{ELEMENTS_MAX, HOSTS_MAX, MTU_DEFAULT, NodeName, TestbedPlan, check_bed_name};
use crate::profile::{FrameShare, LinkDelay, LinkProfile, LinkRate};
use crate::relay::Relay;
use crate::testbed::Testbed;
use crate::xdp::{Action, Program};
use crate::{script, tool};

/// Smallest packet size that IPv4 guarantees; below it, veth carries packets that IP does not.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 65535;

/// Parameters of a testbed. Default: two hosts at one element, on bare links.
///
/// ```no_run
/// # fn main() -> Result<(), pathcall_testbed::Error> {
/// let bed = pathcall_testbed::Testbed::builder().hosts(4).rate("1gbit")?.loss("0.1%")?.up()?;
/// let output = bed.host(1)?.command("ip").arg("address").output();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    name: String,
    hosts: usize,
    elements: usize,
    mtu: u32,
    profile: LinkProfile,
    /// Links with another profile than the rest, by host.
    special: Vec<(usize, LinkProfile)>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        // One process may have several testbeds, and several processes may have testbeds.
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let name = format!("p{}n{}", std::process::id(), BUILT.fetch_add(1, Ordering::Relaxed));
        let (hosts, elements, mtu) = (2, 1, MTU_DEFAULT);
        Self { name, hosts, elements, mtu, profile: LinkProfile::default(), special: Vec::new() }
    }

    /// Sets the name: lower-case letters and digits. Default: a unique name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Sets the number of hosts, up to [`HOSTS_MAX`]. Default: 2.
    #[must_use]
    pub fn hosts(self, hosts: usize) -> Self {
        Self { hosts, ..self }
    }

    /// Sets the number of elements, up to [`ELEMENTS_MAX`], joined by a link. Default: 1.
    #[must_use]
    pub fn elements(self, elements: usize) -> Self {
        Self { elements, ..self }
    }

    /// Sets the bytes of an IP packet. Default: [`MTU_DEFAULT`]. Above about 3,500, veth refuses XDP programs without
    /// multi-buffer support (`xdp.frags`).
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Sets the profile of all links.
    #[must_use]
    pub fn profile(self, profile: LinkProfile) -> Self {
        Self { profile, ..self }
    }

    /// Sets the profile of the link of host `k`, counted from 1.
    #[must_use]
    pub fn link(mut self, k: usize, profile: LinkProfile) -> Self {
        self.special.push((k, profile));
        self
    }

    /// Sets the rate of all links, in bits per second in each direction, as in `1gbit`.
    ///
    /// # Errors
    /// Returns an error if `rate` is invalid.
    pub fn rate(mut self, rate: &str) -> Result<Self, Error> {
        self.profile.rate = Some(rate.parse::<LinkRate>()?);
        Ok(self)
    }

    /// Sets the share of frames that each link loses, as in `0.1%`.
    ///
    /// # Errors
    /// Returns an error if `loss` is invalid.
    pub fn loss(mut self, loss: &str) -> Result<Self, Error> {
        self.profile.loss = loss.parse::<FrameShare>()?;
        Ok(self)
    }

    /// Sets the delay of a frame on each link, as in `5ms`.
    ///
    /// # Errors
    /// Returns an error if `delay` is invalid.
    pub fn delay(mut self, delay: &str) -> Result<Self, Error> {
        self.profile.delay = delay.parse::<LinkDelay>()?;
        Ok(self)
    }

    /// Adds a wire to all links, also to those without properties: see [`LinkProfile::wired`].
    #[must_use]
    pub fn wired(mut self) -> Self {
        self.profile.wired = true;
        self
    }

    /// Builds the testbed.
    ///
    /// The testbed is taken down when the value is dropped, and also when this process ends in any other way.
    ///
    /// # Errors
    /// Returns an error without root, if a program or a kernel feature is missing, if the name is taken, or if a number
    /// is out of range. Nothing is left behind.
    pub fn up(self) -> Result<Testbed, Error> {
        let plan = self.plan()?;
        tool::check()?;
        let namespaces: Vec<String> = plan.nodes().map(|node| node.namespace(&plan.bed)).collect();
        let guard = claim(&plan, &namespaces)?;
        build(&plan)?;
        let relay = Relay::start(&plan)?;
        Ok(Testbed::new(plan, relay, guard))
    }

    fn plan(self) -> Result<TestbedPlan, Error> {
        let Self { name, hosts, elements, mtu, profile, special } = self;
        check_bed_name(&name)?;
        if !(1..=HOSTS_MAX).contains(&hosts) {
            return Err(Error::Hosts { got: hosts });
        }
        if !(1..=ELEMENTS_MAX).contains(&elements) {
            return Err(Error::Elements { got: elements });
        }
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(Error::Mtu { got: mtu });
        }
        let mut links = vec![profile; hosts];
        let idle = |link: &LinkProfile| link.reorder.is_some() && !link.delay.is_some();
        if idle(&profile) || special.iter().any(|(_, link)| idle(link)) {
            return Err(Error::ReorderWithoutDelay);
        }
        for (k, profile) in special {
            let link = k.checked_sub(1).and_then(|at| links.get_mut(at));
            *link.ok_or_else(|| no_host(&name, k, hosts))? = profile;
        }
        Ok(TestbedPlan { bed: name, links, elements, chain: profile, mtu })
    }
}

fn no_host(bed: &str, k: usize, hosts: usize) -> Error {
    Error::NoNode { bed: bed.to_owned(), got: NodeName::Host(k).to_string(), has: format!("h1 to h{hosts}") }
}

/// Creates the first namespace, which only one process can, and starts the guard.
fn claim(plan: &TestbedPlan, namespaces: &[String]) -> Result<Guard, Error> {
    let taken = || Ok::<_, Error>(crate::testbed::list_testbeds()?.contains_key(&plan.bed));
    let already = || Error::AlreadyUp { bed: plan.bed.clone() };
    if taken()? {
        return Err(already());
    }
    let guard = Guard::start(&plan.bed, namespaces)?;
    let first = &namespaces[0];
    match tool::ip(&plan.bed, &format!("netns add {first}\n")) {
        Ok(()) => Ok(guard),
        Err(error) => {
            // Existing namespaces belong to another process.
            guard.dismiss();
            Err(if taken()? { already() } else { error })
        }
    }
}

fn build(plan: &TestbedPlan) -> Result<(), Error> {
    // Root of another user namespace than the system's may not load programs; then no element can have one either.
    let program = tool::may_load_programs().then(|| Program::new(Action::Pass)).transpose()?;
    let pass = program.as_ref().map(Program::path);
    tool::ip(&plan.bed, &script::links(plan))?;
    for node in plan.nodes() {
        let script = match node {
            NodeName::Host(k) => script::host(plan, k, pass.as_deref()),
            NodeName::Element(n) => script::element(plan, n),
            NodeName::Wire => script::wire(plan, pass.as_deref()),
        };
        tool::shell(&node.namespace(&plan.bed), &script)?;
    }
    let await_interfaces = script::await_interfaces(script::ALL);
    plan.nodes().try_for_each(|node| tool::shell(&node.namespace(&plan.bed), &await_interfaces))
}
