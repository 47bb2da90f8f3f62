//! Generates the control contract from `proto/pathcall/control.proto` (no protoc needed).

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo:rerun-if-changed={root}/pathcall/control.proto");
    let set = protox::compile(["pathcall/control.proto"], [root])?;
    // Requests and grants are logged; keys are not.
    tonic_prost_build::configure().skip_debug([".pathcall.v1.TokenKey"]).compile_fds(set)?;
    Ok(())
}
