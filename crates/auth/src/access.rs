//! Access table: which role may call which RPC, for which applications.
//!
//! Without grants a role may call the RPCs that it needs, for all applications; with grants, only what these say. Nobody may call
//! an RPC that the table does not have.

use crate::{Identity, Pattern, Role};

use Role::{Caller, Controller, Element, Operator, Server};

/// What the roles need. A controller may be what its elements are: both are one process with `pathcall up`.
const NEEDED: &[(&str, &[Role])] = &[
    ("Controller/RegisterApplication", &[Server]),
    ("Controller/RegisterEndpoint", &[Server]),
    ("Controller/ReleaseEndpoint", &[Server]),
    ("Controller/RegisterElement", &[Element, Controller]),
    ("Controller/Lookup", &[Server, Caller, Operator]),
    ("Controller/Status", &[Operator]),
    ("Controller/Nodes", &[Server, Caller, Operator]),
    ("Controller/JoinPool", &[Server]),
    ("Element/Install", &[Controller]),
    ("Element/Remove", &[Controller]),
    ("Element/SetEndpoints", &[Controller]),
    ("Element/RemoveEndpoints", &[Controller]),
    ("Element/SetGroup", &[Controller]),
    ("Element/InstallPool", &[Controller]),
    ("Element/ReadRegisters", &[Controller, Operator]),
    ("Element/ResetRegisters", &[Controller]),
    ("Element/Counters", &[Controller, Operator]),
    ("Element/LastSeen", &[Controller, Operator]),
    ("Peer/Join", &[Caller, Server]),
    ("Peer/Admit", &[Caller, Server]),
    ("Peer/GiveUp", &[Caller, Server]),
    ("Peer/Name", &[Caller, Server]),
    ("Peer/Carry", &[Caller, Server]),
    ("Peer/OpenBook", &[Caller, Server]),
    ("Peer/Apply", &[Caller, Server]),
    ("Peer/Node", &[Caller, Server]),
    ("Peer/FollowPool", &[Caller, Server]),
    ("Function/Serve", &[Server]),
    ("Function/ChangeGroup", &[Operator]),
    ("Function/FunctionStatus", &[Operator]),
];

/// The package of Pathcall's own services.
const PACKAGE: &str = "/pathcall.v1.";

/// What some identities may do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Of whom.
    pub role: Role,
    /// Those of the role with such names.
    pub name: Pattern,
    /// RPCs, as `Service/Rpc`; `None`: those that the role needs.
    pub rpcs: Option<Vec<Pattern>>,
    /// Applications and pools by name; of the directory of nodes and of a function, the servers that may take part.
    pub applications: Vec<Pattern>,
}

impl Grant {
    /// All of a role may do what the role needs, for all applications.
    #[must_use]
    pub fn new(role: Role) -> Self {
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
            None => needs(self.role, rpc),
        }
    }
}

/// Who may do what. By default each role what it needs, for all applications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    grants: Vec<Grant>,
}

impl Access {
    /// Adds a grant. With one or more of them nothing else is allowed.
    #[must_use]
    pub fn grant(mut self, grant: Grant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Whether this identity may call the RPC, `Service/Rpc`; for `None`: for any application.
    #[must_use]
    pub fn allows(&self, identity: &Identity, rpc: &str, application: Option<&str>) -> bool {
        if !rpcs().any(|known| known == rpc) {
            return false;
        }
        if self.grants.is_empty() {
            return needs(identity.role, rpc);
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
    NEEDED.iter().map(|(rpc, _)| *rpc)
}

/// The RPC that an HTTP path is of, as `Service/Rpc`; `None`: it is none of Pathcall's.
#[must_use]
pub fn rpc_of(path: &str) -> Option<&str> {
    path.strip_prefix(PACKAGE)
}

fn needs(role: Role, rpc: &str) -> bool {
    NEEDED.iter().any(|(known, roles)| *known == rpc && roles.contains(&role))
}
