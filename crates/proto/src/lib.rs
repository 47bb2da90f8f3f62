//! The contracts that are written in protobuf: [`v1`] is how controller, elements, servers and
//! callers register and find each other. [`manifest`] is what `pathcall-build` generates from a
//! user's `.proto` files and their filters, [`types`] are the typed fields in its messages, and [`delegate`]
//! names methods that servers may pass on.

#![warn(missing_docs)]

pub mod delegate;
pub mod manifest;
pub mod types;

/// Metadata of a controller's refusal of a name that its last owner's lease still holds: milliseconds
/// until that is over, unless the owner comes back.
pub const LAPSES_IN_MS: &str = "pathcall-lapses-in-ms";

/// Ids are less: GAIDs, endpoints, elements.
pub const IDS_END: u32 = 0x8000_0000;

/// Starts of elements that an owner may name as silent when it registers.
pub const SILENT_MAX: usize = 16;

/// Generated from `proto/pathcall/control.proto` and `function.proto`; a test of `pathcall-build` holds it to them.
#[cfg(feature = "grpc")]
#[allow(missing_docs, clippy::all)]
pub mod v1 {
    include!("generated/pathcall.v1.rs");

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
