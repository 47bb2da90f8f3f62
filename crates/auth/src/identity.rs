//! Identities: the role and the name of who is at the other end of a connection, as its certificate says.

use std::fmt;
use std::str::FromStr;

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::Pattern;

/// Where roles and names stand in URIs of the form `spiffe://<trust domain>/pathcall/<role>/<name>`.
pub const URI_PATH: &str = "/pathcall/";

/// What somebody takes part as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Says who takes part: it has the keys of all.
    Controller,
    /// A network element.
    Element,
    /// A server of applications, pools, delegated calls or functions.
    Server,
    /// A client of services.
    Caller,
    /// A person, or a program that looks after the others.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Controller, Self::Element, Self::Server, Self::Caller, Self::Operator];

    /// As URIs and configuration files say it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Element => "element",
            Self::Server => "server",
            Self::Caller => "caller",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let roles = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| format!("no role {name:?}: there are {roles}"))
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// What it takes part as.
    pub role: Role,
    /// Its name among those of the role.
    pub name: String,
}

impl Identity {
    /// One of this role and name.
    #[must_use]
    pub fn new(role: Role, name: impl Into<String>) -> Self {
        Self { role, name: name.into() }
    }

    /// Its URI in a trust domain.
    #[must_use]
    pub fn uri(&self, domain: &str) -> String {
        format!("spiffe://{domain}{URI_PATH}{}/{}", self.role, self.name)
    }

    /// The trust domain and the identity that a URI names; `None`: it is none of Pathcall's.
    #[must_use]
    pub fn of_uri(uri: &str) -> Option<(&str, Self)> {
        let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        let (role, name) = path.strip_prefix(&URI_PATH[1..])?.split_once('/')?;
        if domain.is_empty() || !is_name(name) {
            return None;
        }
        Some((domain, Self::new(role.parse().ok()?, name)))
    }
}

/// Whether it may stand in a URI's path, as the SPIFFE standard has it.
fn is_name(name: &str) -> bool {
    let segment = |segment: &str| {
        let plain = segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        plain && !matches!(segment, "" | "." | "..")
    };
    name.split('/').all(segment)
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.role, self.name)
    }
}

/// A role for certificates of an issuer that knows nothing of Pathcall.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The certificate's URI, or one of its DNS names.
    pub subject: Pattern,
    /// What whoever shows it takes part as.
    pub role: Role,
    /// The name it goes by; the subject itself, unless given.
    pub name: Option<String>,
}

impl Rule {
    /// Those with this URI or DNS name take part as `role`.
    #[must_use]
    pub fn new(subject: Pattern, role: Role) -> Self {
        Self { subject, role, name: None }
    }

    /// Sets [`Self::name`].
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// How certificates are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whose URIs count; any, unless given: the authorities are trusted for all of them.
    pub(crate) domain: Option<String>,
    rules: Vec<Rule>,
}

impl Rules {
    /// Only URIs of this trust domain say a role.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Adds a rule; the first that fits holds, before what a URI says.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Whose certificate it is, if it says so.
    pub(crate) fn identify(&self, certificate: &CertificateDer<'_>) -> Option<Identity> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = certificate.valid_uri_names();
        // With two of them nobody knows which holds.
        let uri = uris.next().filter(|_| uris.next().is_none());
        self.named(uri, &certificate.valid_dns_names().collect::<Vec<_>>())
    }

    fn named(&self, uri: Option<&str>, dns: &[&str]) -> Option<Identity> {
        for rule in &self.rules {
            let subject = uri.iter().chain(dns).find(|subject| rule.subject.matches(subject));
            if let Some(subject) = subject {
                return Some(Identity::new(rule.role, rule.name.as_deref().unwrap_or(subject)));
            }
        }
        let (domain, identity) = Identity::of_uri(uri?)?;
        self.domain.as_deref().is_none_or(|own| own == domain).then_some(identity)
    }
}
