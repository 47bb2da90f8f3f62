//! Identities: role and name of a peer, from its certificate.

use std::fmt;
use std::str::FromStr;

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::Pattern;

/// Path prefix of role and name in URIs of the form `spiffe://<trust domain>/pathcall/<role>/<name>`.
pub const URI_PATH: &str = "/pathcall/";

/// Role of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PartyRole {
    /// Controller: registers all parties and has the keys of all.
    Controller,
    /// Network element.
    Element,
    /// Server of applications, pools, delegated calls or functions.
    Server,
    /// Caller of services.
    Caller,
    /// Operator: a person or program that configures and watches.
    Operator,
}

impl PartyRole {
    /// All roles.
    pub const ALL: [Self; 5] = [Self::Controller, Self::Element, Self::Server, Self::Caller, Self::Operator];

    /// Name of the role in URIs and configuration files.
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

impl fmt::Display for PartyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PartyRole {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let roles = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| format!("unknown role {name:?} (roles: {roles})"))
    }
}

/// Identity of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// Role of the peer.
    pub role: PartyRole,
    /// Name of the peer within its role.
    pub name: String,
}

impl Identity {
    /// Identity with this role and name.
    #[must_use]
    pub fn new(role: PartyRole, name: impl Into<String>) -> Self {
        Self { role, name: name.into() }
    }

    /// URI of the identity in a trust domain.
    #[must_use]
    pub fn uri(&self, domain: &str) -> String {
        format!("spiffe://{domain}{URI_PATH}{}/{}", self.role, self.name)
    }

    /// Trust domain and identity of a URI; `None` if the URI is not one of Pathcall's.
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

/// Whether a name is valid in the path of a SPIFFE URI.
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

/// Rule that gives a role to certificates of other issuers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdentityRule {
    /// Pattern of the certificate's URI or DNS names.
    pub subject: Pattern,
    /// Role of matching certificates.
    pub role: PartyRole,
    /// Name of matching certificates; the subject itself, unless set.
    pub name: Option<String>,
}

impl IdentityRule {
    /// Rule: certificates with this URI or DNS name have the role `role`.
    #[must_use]
    pub fn new(subject: Pattern, role: PartyRole) -> Self {
        Self { subject, role, name: None }
    }

    /// Sets [`Self::name`].
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// Rules that map certificates to identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityRules {
    /// Trust domain whose URIs have roles; `None` for any, since the authorities are trusted for all of them.
    pub(crate) domain: Option<String>,
    rules: Vec<IdentityRule>,
}

impl IdentityRules {
    /// Restricts roles in URIs to this trust domain.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Adds a rule; the first matching rule has precedence over roles in URIs.
    #[must_use]
    pub fn rule(mut self, rule: IdentityRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Identity of a certificate, if it has one.
    pub(crate) fn identify(&self, certificate: &CertificateDer<'_>) -> Option<Identity> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = certificate.valid_uri_names();
        // A certificate with two URIs is ambiguous.
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
