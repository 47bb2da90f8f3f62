//! Build script: generates the stubs and the manifest.

fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::compile(&["proto/visits.proto"], &["proto"])
}
