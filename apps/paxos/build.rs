//! Build script: generates tonic's stubs and the manifest.

fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::compile(&["proto/paxos.proto"], &["proto"])
}
