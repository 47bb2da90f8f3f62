//! Build script: generates stubs and manifest as in a user's project.

/// Services of the example of a pipe.
#[cfg(feature = "services")]
const SHOP: &str = "../../examples/pipe/shop.proto";

#[cfg(feature = "services")]
fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::configure().runtime("::pathcall_proto").compile(
        &["proto/rpctest.proto", "proto/rounds.proto", "proto/filters.proto", SHOP],
        &["proto", "../../examples/pipe"],
    )
}

#[cfg(not(feature = "services"))]
fn main() {}
