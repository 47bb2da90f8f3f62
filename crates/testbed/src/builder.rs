//! Builds a bed: what is asked for in, a [`Testbed`] out.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bed::Testbed;
use crate::error::Error;
use crate::guard::Guard;
use crate::plan::{ELEMENTS_MAX, HOSTS_MAX, MTU_DEFAULT, NodeName, Plan, check_bed_name};
use crate::profile::{Delay, Profile, Rate, Share};
use crate::relay::Relay;
use crate::xdp::{Action, Program};
use crate::{script, tool};

/// Least that IPv4 promises to carry; below it, veth takes what IP does not.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 65535;

/// What to build: hosts around one element on bare links, unless it is told otherwise.
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
    profile: Profile,
    /// Links that are not like the others, by host.
    special: Vec<(usize, Profile)>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        // A process may have several beds at once, and there may be several such processes.
        static BUILT: AtomicU32 = AtomicU32::new(0);
        let name = format!("p{}n{}", std::process::id(), BUILT.fetch_add(1, Ordering::Relaxed));
        let (hosts, elements, mtu) = (2, 1, MTU_DEFAULT);
        Self { name, hosts, elements, mtu, profile: Profile::default(), special: Vec::new() }
    }

    /// Lower-case letters and digits; one that no other bed has, unless given.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Hosts, up to [`HOSTS_MAX`]; 2, unless given.
    #[must_use]
    pub fn hosts(self, hosts: usize) -> Self {
        Self { hosts, ..self }
    }

    /// Elements, up to [`ELEMENTS_MAX`], joined by a link; 1, unless given.
    #[must_use]
    pub fn elements(self, elements: usize) -> Self {
        Self { elements, ..self }
    }

    /// Bytes of an IP packet; [`MTU_DEFAULT`], unless given. An XDP program that does not say that it takes
    /// frames in parts (`xdp.frags`) is refused by veth above some 3,500.
    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// What all links are like.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// What the link of host `k`, counted from 1, is like, if not as the others.
    #[must_use]
    pub fn link(mut self, k: usize, profile: Profile) -> Self {
        self.special.push((k, profile));
        self
    }

    /// Bits a second of all links, in each direction: `1gbit`.
    ///
    /// # Errors
    /// When the word is no rate.
    pub fn rate(mut self, rate: &str) -> Result<Self, Error> {
        self.profile.rate = Some(rate.parse::<Rate>()?);
        Ok(self)
    }

    /// Share of frames that get lost on each link: `0.1%`.
    ///
    /// # Errors
    /// When the word is no share.
    pub fn loss(mut self, loss: &str) -> Result<Self, Error> {
        self.profile.loss = loss.parse::<Share>()?;
        Ok(self)
    }

    /// How long a frame takes on each link: `5ms`.
    ///
    /// # Errors
    /// When the word is no delay.
    pub fn delay(mut self, delay: &str) -> Result<Self, Error> {
        self.profile.delay = delay.parse::<Delay>()?;
        Ok(self)
    }

    /// Has all links pass a wire, also those that have no property: see [`Profile::wired`].
    #[must_use]
    pub fn wired(mut self) -> Self {
        self.profile.wired = true;
        self
    }

    /// Builds it.
    ///
    /// The bed is taken down when the value is dropped, and also when this process ends in any other way.
    ///
    /// # Errors
    /// Without root, when a program or something of the kernel is lacking, when the name is taken, and
    /// when a number is out of range. Nothing is left then.
    pub fn up(self) -> Result<Testbed, Error> {
        let plan = self.plan()?;
        tool::check()?;
        let namespaces: Vec<String> = plan.nodes().map(|node| node.namespace(&plan.bed)).collect();
        let guard = claim(&plan, &namespaces)?;
        build(&plan)?;
        let relay = Relay::start(&plan)?;
        Ok(Testbed::new(plan, relay, guard))
    }

    fn plan(self) -> Result<Plan, Error> {
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
        let idle = |link: &Profile| link.reorder.is_some() && !link.delay.is_some();
        if idle(&profile) || special.iter().any(|(_, link)| idle(link)) {
            return Err(Error::NothingToOvertake);
        }
        for (k, profile) in special {
            let link = k.checked_sub(1).and_then(|at| links.get_mut(at));
            *link.ok_or_else(|| no_host(&name, k, hosts))? = profile;
        }
        Ok(Plan { bed: name, links, elements, chain: profile, mtu })
    }
}

fn no_host(bed: &str, k: usize, hosts: usize) -> Error {
    Error::NoNode { bed: bed.to_owned(), got: NodeName::Host(k).to_string(), has: format!("h1 to h{hosts}") }
}

/// Makes the first namespace, which only one process can, and from then on has a guard.
fn claim(plan: &Plan, namespaces: &[String]) -> Result<Guard, Error> {
    let taken = || Ok::<_, Error>(crate::bed::beds()?.contains_key(&plan.bed));
    let already = || Error::AlreadyUp { bed: plan.bed.clone() };
    if taken()? {
        return Err(already());
    }
    let guard = Guard::start(&plan.bed, namespaces)?;
    let first = &namespaces[0];
    match tool::ip(&plan.bed, &format!("netns add {first}\n")) {
        Ok(()) => Ok(guard),
        Err(error) => {
            // What is there, if anything, is somebody else's.
            guard.dismiss();
            Err(if taken()? { already() } else { error })
        }
    }
}

fn build(plan: &Plan) -> Result<(), Error> {
    let pass = Program::new(Action::Pass)?;
    tool::ip(&plan.bed, &script::links(plan))?;
    for node in plan.nodes() {
        let script = match node {
            NodeName::Host(k) => script::host(plan, k, &pass.path()),
            NodeName::Element(n) => script::element(plan, n),
            NodeName::Wire => script::wire(plan, &pass.path()),
        };
        tool::shell(&node.namespace(&plan.bed), &script)?;
    }
    let settle = script::settle(script::ALL);
    plan.nodes().try_for_each(|node| tool::shell(&node.namespace(&plan.bed), &settle))
}
