//! Stubs and manifest as a user's build script makes them.

#[cfg(feature = "services")]
fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::configure()
        .runtime("::pathcall_proto")
        .compile(&["proto/rpctest.proto", "proto/rounds.proto"], &["proto"])
}

#[cfg(not(feature = "services"))]
fn main() {}
