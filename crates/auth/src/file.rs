//! Configuration file `pathcall.toml`: credentials, identity rules and grants.
//!
//! ```toml
//! [tls]
//! authorities = "ca.pem"          # paths are of the file's folder
//! certificate = "words-1.pem"     # with its key, unless `key` names another file
//! domain = "corp.example"         # whose URIs count; all that the authorities sign, unless given
//!
//! [[identity]]                    # certificates of issuers that know nothing of Pathcall
//! subject = "spiffe://corp.example/ns/prod/sa/words-*"
//! role = "server"
//! name = "words"
//!
//! [[allow]]                       # none: each role what it needs, for all applications
//! role = "server"
//! name = "words-*"
//! rpcs = ["Controller/*"]         # what the role needs, unless given
//! applications = ["Words*"]       # all, unless given
//! ```

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::access::rpcs;
use crate::{AccessGrant, AccessTable, Credentials, CredentialsError, IdentityRule, IdentityRules, PartyRole, Pattern};

/// Content of a configuration file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Credentials of the party.
    pub credentials: Credentials,
    /// Access table.
    pub access: AccessTable,
}

/// Error of a configuration file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is not valid TOML, or has unknown fields.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Position and reason.
        source: Box<toml::de::Error>,
    },
    /// A value is invalid.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Description of the error.
        what: String,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tls: Tls,
    #[serde(default)]
    identity: Vec<IdentityEntry>,
    #[serde(default)]
    allow: Vec<GrantEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
    authorities: PathBuf,
    certificate: PathBuf,
    key: Option<PathBuf>,
    domain: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityEntry {
    subject: String,
    role: String,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantEntry {
    role: String,
    name: Option<String>,
    rpcs: Option<Vec<String>>,
    applications: Option<Vec<String>>,
}

impl Config {
    /// Reads a configuration file and its certificates.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        let syntax = |source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) };
        let File { tls, identity, allow } = toml::from_str(&text).map_err(syntax)?;
        let content = |what| ConfigError::Content { path: path.to_owned(), what };
        let rules = rules(tls.domain, identity).map_err(content)?;
        let access = access(allow).map_err(content)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let key = tls.key.as_ref().unwrap_or(&tls.certificate);
        let [authorities, certificate, key] = [&tls.authorities, &tls.certificate, key].map(|file| folder.join(file));
        let credentials = Credentials::files(authorities, certificate, key, rules)?;
        Ok(Self { credentials, access })
    }
}

fn rules(domain: Option<String>, entries: Vec<IdentityEntry>) -> Result<IdentityRules, String> {
    let mut rules = IdentityRules::default();
    if let Some(domain) = domain {
        rules = rules.domain(domain);
    }
    for IdentityEntry { subject, role, name } in entries {
        let rule = IdentityRule::new(Pattern::new(subject), role.parse()?);
        rules = rules.rule(match name {
            Some(name) => rule.name(name),
            None => rule,
        });
    }
    Ok(rules)
}

fn access(entries: Vec<GrantEntry>) -> Result<AccessTable, String> {
    let mut access = AccessTable::default();
    for GrantEntry { role, name, rpcs, applications } in entries {
        let role: PartyRole = role.parse()?;
        let mut grant = AccessGrant::new(role).name(name.map_or(Pattern::any(), Pattern::new));
        if let Some(rpcs) = rpcs {
            let rpcs: Result<Vec<_>, _> = rpcs.into_iter().map(rpc_pattern).collect();
            grant = grant.rpcs(rpcs?);
        }
        if let Some(applications) = applications {
            grant = grant.applications(applications.into_iter().map(Pattern::new));
        }
        access = access.grant(grant);
    }
    Ok(access)
}

/// Pattern of RPCs; it must match at least one, since other patterns are mistakes.
fn rpc_pattern(rpc: String) -> Result<Pattern, String> {
    let pattern = Pattern::new(&rpc);
    if rpcs().any(|known| pattern.matches(known)) {
        return Ok(pattern);
    }
    let all: Vec<_> = rpcs().collect();
    Err(format!("unknown RPC {rpc:?} (RPCs: {})", all.join(", ")))
}
