//! Authentication of control connections: identity of the peer, and its access to RPCs.
//!
//! ```text
//!  certificate ──► credentials ──► incoming, target: TLS both ways
//!                      │                │ certificate of the peer
//!                      ▼                ▼
//!                  identity ◄──────── guard ──► access: role × RPC × application
//! ```
//!
//! Controllers, elements, servers, callers and operators authenticate each other by certificates. A certificate has an
//! identity if it has exactly one URI `spiffe://<trust domain>/pathcall/<role>/<name>`; [`IdentityRules`] give roles
//! and names to certificates of other issuers. [`Credentials`] are a party's certificate with its key and trusted
//! authorities; they are read again when their files change. [`ConnectTarget`] makes connections, [`TlsIncoming`]
//! accepts them, [`AccessGuard`] checks each call against the [`AccessTable`], and [`caller`] checks access to an
//! application. Without credentials nothing is checked; [`plaintext`] restricts this to loopback addresses.
//!
//! Feature `file`: credentials and rules from a configuration file, [`Config`].

#![warn(missing_docs)]

pub mod access;
pub mod caller;
mod connection_start;
mod credentials;
#[cfg(feature = "file")]
mod file;
mod guard;
mod identity;
mod incoming;
mod pattern;
mod plaintext;
mod security;
mod target;
mod verify;

pub use access::{AccessGrant, AccessTable};
pub use credentials::{Credentials, CredentialsError};
#[cfg(feature = "file")]
pub use file::{Config, ConfigError};
pub use guard::{AccessGuard, CertificatePolicy, GuardedService};
pub use identity::{Identity, IdentityRule, IdentityRules, PartyRole, URI_PATH};
pub use incoming::TlsIncoming;
pub use pattern::Pattern;
pub use plaintext::{PlaintextError, plaintext};
pub use security::Security;
pub use target::{ConnectTarget, ConnectTargetError, ConnectionEvent, ExpectedPeer, innermost};
