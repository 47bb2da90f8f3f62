//! Generates the contracts of control from `proto/pathcall/{control,function}.proto` (no protoc needed).

#[cfg(not(feature = "grpc"))]
fn main() {}

#[cfg(feature = "grpc")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    let files = ["pathcall/control.proto", "pathcall/function.proto"];
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={root}/{file}"));
    let set = protox::compile(files, [root])?;
    // Requests and grants are logged; keys are not.
    tonic_prost_build::configure().skip_debug([".pathcall.v1.TokenKey"]).compile_fds(set)?;
    Ok(())
}
