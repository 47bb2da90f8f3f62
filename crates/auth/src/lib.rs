//! Identities of control connections: who is at the other end, and what that may call.
//!
//! ```text
//!  certificate ──► credentials ──► incoming, target: TLS both ways
//!                      │                │ certificate of the peer
//!                      ▼                ▼
//!                  identity ◄──────── guard ──► access: role × RPC × application
//! ```
//!
//! Controllers, elements, servers, callers and operators show certificates to each other. A certificate says who it is of by
//! one URI, `spiffe://<trust domain>/pathcall/<role>/<name>`; certificates of other issuers are given a role and a name by
//! [`Rules`]. [`Credentials`] are one party's certificate, its key, and the authorities it trusts; they are read again when their
//! files change. [`Target`] is where a party connects to, [`Incoming`] how it takes connections, [`Guard`] a layer that asks
//! [`Access`] before a call is taken, [`caller`] what a service asks for one application. Without credentials nobody is asked:
//! [`plaintext`] says where that may be.
//!
//! Feature `file`: credentials and rules from one configuration file, [`Config`].

#![warn(missing_docs)]

pub mod access;
pub mod caller;
mod credentials;
#[cfg(feature = "file")]
mod file;
mod guard;
mod identity;
mod incoming;
mod opening;
mod pattern;
mod plaintext;
mod security;
mod target;
mod verify;

pub use access::{Access, Grant};
pub use credentials::{Credentials, CredentialsError};
#[cfg(feature = "file")]
pub use file::{Config, ConfigError};
pub use guard::{Certificate, Guard, Guarded};
pub use identity::{Identity, Role, Rule, Rules, URI_PATH};
pub use incoming::Incoming;
pub use pattern::Pattern;
pub use plaintext::{PlaintextError, plaintext};
pub use security::Security;
pub use target::{Peer, Seen, Target, TargetError, innermost};
