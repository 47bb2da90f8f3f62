//! Makes the stubs, and what the methods ask of their path.

fn main() -> Result<(), pathcall_build::Error> {
    pathcall_build::compile(&["proto/greeter.proto"], &["proto"])
}
