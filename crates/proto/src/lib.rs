//! Contracts in protobuf, and the manifests of services. [`v1`] is the registration contract between controller,
//! elements, servers and callers. [`manifest`] is the output of `pathcall-build` for a user's `.proto` files and their
//! filters, [`types`] are the typed fields in messages, and [`delegate`] the types of delegated methods.

#![warn(missing_docs)]

pub mod delegate;
pub mod manifest;
pub mod types;

/// Metadata key of a controller's refusal of a name whose last owner still has a lease: milliseconds until the lease
/// expires, unless that owner returns.
pub const LEASE_EXPIRES_IN_MS: &str = "pathcall-lease-expires-in-ms";

/// Exclusive upper bound of ids: GAIDs, endpoints, elements.
pub const IDS_END: u32 = 0x8000_0000;

/// Limit of the element starts that an owner may report as silent when it registers.
pub const SILENT_MAX: usize = 16;

/// Generated from `proto/pathcall/control.proto` and `function.proto`; a test of `pathcall-build` compares it with
/// them.
#[cfg(feature = "grpc")]
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    include!("generated/pathcall.v1.rs");

    impl NoMemoryReason {
        /// Reason in words; `None` if there is none.
        #[must_use]
        pub fn text(self) -> Option<&'static str> {
            match self {
                Self::Unspecified => None,
                Self::NotUsable => Some("not usable"),
                Self::Pinned => Some("pinned"),
                Self::SameHost => Some("one host"),
                Self::Idle => Some("idle"),
                Self::Profile => Some("no element serves its rows"),
            }
        }
    }

    impl std::fmt::Debug for TokenKey {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("TokenKey(secret)")
        }
    }

    impl From<[u64; 2]> for TokenKey {
        fn from([k0, k1]: [u64; 2]) -> Self {
            Self { k0, k1 }
        }
    }

    impl From<TokenKey> for [u64; 2] {
        fn from(TokenKey { k0, k1 }: TokenKey) -> Self {
            [k0, k1]
        }
    }
}
