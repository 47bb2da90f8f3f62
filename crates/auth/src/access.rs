//! Access table: which role may call which RPC, for which applications.
//!
//! Without grants, a role may call the RPCs that it needs, for all applications; with grants, only the granted ones.
//! RPCs that are not in the table are refused for every role.

use crate::{Identity, PartyRole, Pattern};

use PartyRole::{Caller, Controller, Element, Operator, Server};

/// RPCs with the roles that need them. A controller may act as its elements: with `pathcall up` both are one process.
const DEFAULT_RPCS: &[(&str, &[PartyRole])] = &[
    ("Controller/RegisterApplication", &[Server]),
    ("Controller/RegisterEndpoint", &[Server]),
    ("Controller/ReleaseEndpoint", &[Server]),
    ("Controller/RegisterElement", &[Element, Controller]),
    ("Controller/Lookup", &[Server, Caller, Operator]),
    ("Controller/Status", &[Operator]),
    ("Controller/FollowNodes", &[Server, Caller, Operator]),
    ("Controller/JoinPool", &[Server]),
    ("Element/InstallApplication", &[Controller]),
    ("Element/Remove", &[Controller]),
    ("Element/SetEndpoints", &[Controller]),
    ("Element/RemoveEndpoints", &[Controller]),
    ("Element/SetMulticastGroup", &[Controller]),
    ("Element/InstallPool", &[Controller]),
    ("Element/ReadRegisters", &[Controller, Operator]),
    ("Element/ResetRegisters", &[Controller]),
    ("Element/Counters", &[Controller, Operator]),
    ("Element/LastSeen", &[Controller, Operator]),
    ("Peer/Join", &[Caller, Server]),
    ("Peer/Admit", &[Caller, Server]),
    ("Peer/CancelSum", &[Caller, Server]),
    ("Peer/NumberKeys", &[Caller, Server]),
    ("Peer/CarryFrames", &[Caller, Server]),
    ("Peer/OpenJournal", &[Caller, Server]),
    ("Peer/ApplyCall", &[Caller, Server]),
    ("Peer/LookupNode", &[Caller, Server]),
    ("Peer/FollowPool", &[Caller, Server]),
    ("Function/Serve", &[Server]),
    ("Function/ChangeGroup", &[Operator]),
    ("Function/FunctionStatus", &[Operator]),
];

/// Package of Pathcall's own services.
const PACKAGE: &str = "/pathcall.v1.";

/// Grant of RPCs and applications to some identities.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessGrant {
    /// Role of the identities.
    pub role: PartyRole,
    /// Pattern of their names.
    pub name: Pattern,
    /// RPCs, as `Service/Rpc`; `None` for those that the role needs.
    pub rpcs: Option<Vec<Pattern>>,
    /// Names of applications and pools; for the directory of nodes and for functions, names of the servers that may
    /// take part.
    pub applications: Vec<Pattern>,
}

impl AccessGrant {
    /// Grant of all RPCs that a role needs, for all applications, to all identities of the role.
    #[must_use]
    pub fn new(role: PartyRole) -> Self {
        Self { role, name: Pattern::any(), rpcs: None, applications: vec![Pattern::any()] }
    }

    /// Sets [`Self::name`].
    #[must_use]
    pub fn name(mut self, name: Pattern) -> Self {
        self.name = name;
        self
    }

    /// Sets [`Self::rpcs`].
    #[must_use]
    pub fn rpcs(mut self, rpcs: impl IntoIterator<Item = Pattern>) -> Self {
        self.rpcs = Some(rpcs.into_iter().collect());
        self
    }

    /// Sets [`Self::applications`].
    #[must_use]
    pub fn applications(mut self, applications: impl IntoIterator<Item = Pattern>) -> Self {
        self.applications = applications.into_iter().collect();
        self
    }

    fn is_of(&self, identity: &Identity) -> bool {
        self.role == identity.role && self.name.matches(&identity.name)
    }

    fn allows(&self, rpc: &str) -> bool {
        match &self.rpcs {
            Some(rpcs) => rpcs.iter().any(|pattern| pattern.matches(rpc)),
            None => is_needed(self.role, rpc),
        }
    }
}

/// Access table of a service. By default each role may call the RPCs that it needs, for all applications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessTable {
    grants: Vec<AccessGrant>,
}

impl AccessTable {
    /// Adds a grant. With at least one grant, only granted calls are allowed.
    #[must_use]
    pub fn grant(mut self, grant: AccessGrant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Whether this identity may call the RPC, `Service/Rpc`, for this application, or for any application if `None`.
    #[must_use]
    pub fn allows(&self, identity: &Identity, rpc: &str, application: Option<&str>) -> bool {
        if !rpcs().any(|known| known == rpc) {
            return false;
        }
        if self.grants.is_empty() {
            return is_needed(identity.role, rpc);
        }
        let mut grants = self.grants.iter().filter(|grant| grant.is_of(identity) && grant.allows(rpc));
        match application {
            Some(name) => grants.any(|grant| grant.applications.iter().any(|pattern| pattern.matches(name))),
            None => grants.next().is_some(),
        }
    }
}

/// All RPCs of Pathcall's services, as `Service/Rpc`.
pub fn rpcs() -> impl Iterator<Item = &'static str> {
    DEFAULT_RPCS.iter().map(|(rpc, _)| *rpc)
}

/// RPC of an HTTP path, as `Service/Rpc`; `None` if it is not one of Pathcall's.
#[must_use]
pub fn rpc_of(path: &str) -> Option<&str> {
    path.strip_prefix(PACKAGE)
}

fn is_needed(role: PartyRole, rpc: &str) -> bool {
    DEFAULT_RPCS.iter().any(|(known, roles)| *known == rpc && roles.contains(&role))
}
