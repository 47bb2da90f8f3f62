//! Configuration file `pathcall.toml`: credentials, identities of other issuers, and grants.
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
use crate::{Access, Credentials, CredentialsError, Grant, Pattern, Role, Rule, Rules};

/// What a configuration file says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The party's own.
    pub credentials: Credentials,
    /// Who may do what.
    pub access: Access,
}

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is no TOML, or has other fields.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and why.
        source: Box<toml::de::Error>,
    },
    /// It says what can't be.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What, and what there is.
        what: String,
    },
    /// The certificates that it names can't be used.
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
    /// Reads a configuration file, and the certificates that it names.
    ///
    /// # Errors
    /// When it, or one of them, can't be read or used.
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

fn rules(domain: Option<String>, entries: Vec<IdentityEntry>) -> Result<Rules, String> {
    let mut rules = Rules::default();
    if let Some(domain) = domain {
        rules = rules.domain(domain);
    }
    for IdentityEntry { subject, role, name } in entries {
        let rule = Rule::new(Pattern::new(subject), role.parse()?);
        rules = rules.rule(match name {
            Some(name) => rule.name(name),
            None => rule,
        });
    }
    Ok(rules)
}

fn access(entries: Vec<GrantEntry>) -> Result<Access, String> {
    let mut access = Access::default();
    for GrantEntry { role, name, rpcs, applications } in entries {
        let role: Role = role.parse()?;
        let mut grant = Grant::new(role).name(name.map_or(Pattern::any(), Pattern::new));
        if let Some(rpcs) = rpcs {
            let rpcs: Result<Vec<_>, _> = rpcs.into_iter().map(known).collect();
            grant = grant.rpcs(rpcs?);
        }
        if let Some(applications) = applications {
            grant = grant.applications(applications.into_iter().map(Pattern::new));
        }
        access = access.grant(grant);
    }
    Ok(access)
}

/// A pattern of RPCs that matches one at least: another is a slip of the pen.
fn known(rpc: String) -> Result<Pattern, String> {
    let pattern = Pattern::new(&rpc);
    if rpcs().any(|known| pattern.matches(known)) {
        return Ok(pattern);
    }
    let all: Vec<_> = rpcs().collect();
    Err(format!("no RPC is {rpc:?}: there are {}", all.join(", ")))
}
