//! Generates tonic's stubs and what the methods ask of their path.

fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::compile(&["proto/chord.proto"], &["proto"])
}
