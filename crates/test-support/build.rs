//! Build script: generates stubs and manifest as in a user's project.

#[cfg(feature = "services")]
fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::configure()
        .runtime("::pathcall_proto")
        .compile(&["proto/rpctest.proto", "proto/rounds.proto", "proto/shop.proto"], &["proto"])
}

#[cfg(not(feature = "services"))]
fn main() {}
