//! Tests of the files generated in `OUT_DIR`.

use std::path::{Path, PathBuf};

use pathcall_build::{Error, configure};
use pathcall_proto::manifest::{ClearPolicy, ForwardTarget, Kind, Shape};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn generate(proto: &str) -> tempfile::TempDir {
    let out = tempfile::tempdir().expect("a directory");
    let build = configure().runtime("::pathcall_proto").out_dir(out.path());
    build.compile(&[fixtures().join(proto)], &[fixtures()]).unwrap_or_else(|error| panic!("{error}"));
    out
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Checks that the generated text equals the stored text. `PATHCALL_GOLDEN=write` accepts a change.
#[track_caller]
fn matches_stored(generated: &str, directory: &str, name: &str) {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    if std::env::var_os("PATHCALL_GOLDEN").is_some_and(|requested| requested == "write") {
        std::fs::write(stored.join(name), generated).expect("stored");
    }
    assert!(generated == read(&stored, name), "{name} differs: run with PATHCALL_GOLDEN=write, and see the difference");
}

/// Users' code changes only on purpose. The manifests of both packages with filters are in one file.
#[test]
fn manifests_match_stored_text() {
    let [training, lock, docs] = ["training", "lock", "docs"]
        .map(|name| read(generate(&format!("{name}.proto")).path(), &format!("{name}.pathcall.rs")));
    let filters = format!("pub mod training {{\n{training}}}\npub mod lock {{\n{lock}}}\n");
    matches_stored(&filters, "tests/golden", "filters.rs");
    matches_stored(&docs, "tests/golden", "docs.pathcall.rs");
}

/// The stored text compiles, as constants. The descriptor files are not beside it.
#[expect(unreachable_pub, reason = "generated")]
mod golden {
    macro_rules! include_bytes {
        ($file:literal) => {
            $file.as_bytes()
        };
    }
    include!("golden/filters.rs");
}

/// The stored text compiles with messages as prost generates them.
#[expect(unreachable_pub, reason = "generated")]
mod docs {
    macro_rules! include_bytes {
        ($file:literal) => {
            $file.as_bytes()
        };
    }
    include!("golden/docs.pathcall.rs");

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Query {}
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Doc {}
    pub(super) mod query {
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct Word {}
    }
}

#[test]
fn delegated_methods_have_types() {
    use docs::delegated::{DocsFetch, DocsLookup, DocsTouch};
    use pathcall_proto::delegate::RpcMethod;

    fn takes<M: RpcMethod<Request = R, Response = docs::Doc>, R>() -> (&'static str, bool) {
        (M::PATH, docs::PATHCALL.delegated(M::PATH).is_some())
    }
    assert_eq!(takes::<DocsLookup, docs::Query>(), ("/docs.Docs/Lookup", true));
    assert_eq!(takes::<DocsFetch, docs::query::Word>(), ("/docs.Docs/Fetch", true));
    assert_eq!(takes::<DocsTouch, ()>(), ("/docs.Docs/Touch", true));
    assert!(docs::PATHCALL.delegated("/docs.Docs/Count").is_none());
}

#[test]
fn extern_types_are_used_by_delegated_methods() {
    let out = tempfile::tempdir().expect("a directory");
    let build =
        configure().runtime("::pathcall_proto").out_dir(out.path()).extern_path(".docs.Doc", "::elsewhere::Doc");
    build.compile(&[fixtures().join("docs.proto")], &[fixtures()]).unwrap_or_else(|error| panic!("{error}"));
    let (stubs, delegated) = (read(out.path(), "docs.rs"), read(out.path(), "docs.pathcall.rs"));
    assert!(!stubs.contains("struct Doc "), "{stubs}");
    assert!(delegated.contains("type Response = ::elsewhere::Doc;"), "{delegated}");
    assert!(delegated.contains("type Request = super::Query;"), "{delegated}");
}

#[test]
fn generated_manifests_have_expected_content() {
    let update = golden::training::PATHCALL.method("/training.Training/Update").expect("Update");
    assert_eq!(update.kind, Kind::Sum { threshold: 2, clear: ClearPolicy::Copy });
    let tensor = update.request.expect("a field");
    assert_eq!((tensor.path, tensor.name, tensor.shape), (&[1][..], "NewGrad.tensor", Shape::FpArray));
    assert_eq!(golden::training::PATHCALL.descriptor, b"training.pathcall.bin");
    let lock = golden::lock::PATHCALL.method("/lock.Lock/GetLock").expect("GetLock");
    assert_eq!(lock.kind, Kind::Count { threshold: 1, to: ForwardTarget::Src });
    assert!(golden::lock::PATHCALL.method("/lock.Lock/Release").is_some(), "sorted by path");
}

#[test]
fn stubs_match_tonic_with_pathcall_types() {
    let out = generate("training.proto");
    let stubs = read(out.path(), "training.rs");
    assert!(stubs.contains("pub tensor: ::core::option::Option<::pathcall_proto::types::FpArray>"), "{stubs}");
    assert!(stubs.contains("pub struct TrainingClient<T>"));
    assert!(stubs.contains("pub trait Training"));
}

#[test]
fn descriptor_keeps_option() {
    use prost_reflect::{DescriptorPool, Value};
    let out = generate("training.proto");
    let bytes = std::fs::read(out.path().join("training.pathcall.bin")).expect("descriptor");
    let pool = DescriptorPool::decode(&bytes[..]).expect("a complete set of files");
    let option = pool.get_extension_by_name("pathcall.filter").expect("options.proto is in it");
    let method = pool.get_service_by_name("training.Training").and_then(|service| service.methods().next());
    let options = method.expect("Update").options();
    assert_eq!(*options.get_extension(&option), Value::String("agtr.nf".to_owned()));
}

/// Descriptors are written to the requested file.
#[test]
fn descriptors_are_written_to_requested_path() {
    let out = tempfile::tempdir().expect("a directory");
    let path = out.path().join("all.bin");
    let build = configure().runtime("::pathcall_proto").out_dir(out.path()).file_descriptor_set_path(&path);
    build.compile(&[fixtures().join("training.proto")], &[fixtures()]).expect("stubs");
    let written = std::fs::read(path).expect("a file");
    assert_eq!(written, std::fs::read(out.path().join("training.pathcall.bin")).expect("the manifest's"));
}

#[test]
fn every_typed_field_has_rust_type() {
    let proto = "syntax = \"proto3\"; package every; import \"pathcall/types.proto\";
        message Every {
            pathcall.IntArray a = 1; pathcall.FPArray b = 2; pathcall.FPArray32 c = 3; pathcall.STRINTMap d = 4;
            pathcall.STRFPMap e = 5; pathcall.INTINTMap f = 6; pathcall.INTFPMap g = 7; pathcall.IntValue h = 8;
            pathcall.FPValue i = 9; }
        message Copied { pathcall.IntValue h = 1; }
        message Hashed { pathcall.IntArray a = 1; }";
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("every.proto"), proto).expect("a file");
    let build = configure().runtime("::pathcall_proto").out_dir(directory.path());
    build.compile(&[directory.path().join("every.proto")], &[directory.path()]).expect("compiles");
    matches_stored(&read(directory.path(), "every.rs"), "tests/golden", "every.rs");
    assert!(
        read(directory.path(), "every.pathcall.rs").contains("methods: &[\n        ],"),
        "no method, but a manifest"
    );
}

/// The generated messages compile: each type exists, and is `Copy`, `Eq` and `Hash` where the generator relies on it.
#[expect(unreachable_pub, reason = "generated")]
mod every {
    include!("golden/every.rs");
}

#[test]
fn generated_messages_compile() {
    fn is_copy<T: Copy + Eq + std::hash::Hash>(_: T) {}
    is_copy(every::Copied::default());
    assert_eq!(every::Every::default(), every::Every::default());
    assert_eq!(every::Hashed::default(), every::Hashed::default());
}

/// The encoding of our types matches `types.proto`.
#[test]
fn typed_field_encoding_matches_proto() {
    use pathcall_proto::types::*;
    use prost_reflect::{DescriptorPool, DynamicMessage};

    let out = generate("training.proto");
    let bytes = std::fs::read(out.path().join("training.pathcall.bin")).expect("descriptor");
    let pool = DescriptorPool::decode(&bytes[..]).expect("a complete set of files");
    let round_trip = |ours: &dyn Fn() -> (String, Vec<u8>)| {
        let (name, bytes) = ours();
        let descriptor = pool.get_message_by_name(&name).unwrap_or_else(|| panic!("{name} is in types.proto"));
        let message = DynamicMessage::decode(descriptor, &bytes[..]).expect("decodes");
        assert_eq!(message.unknown_fields().count(), 0, "{name}");
        assert_eq!(message.fields().count(), 1, "{name}");
        assert_eq!(prost::Message::encode_to_vec(&message), bytes, "{name}");
    };
    fn of<M: prost::Name>(message: M) -> impl Fn() -> (String, Vec<u8>) {
        move || (M::full_name(), message.encode_to_vec())
    }
    round_trip(&of(IntArray { data: vec![-1, 0, i64::MAX] }));
    round_trip(&of(FpArray { data: vec![-1.5, 0.0] }));
    round_trip(&of(FpArray32 { data: vec![-1.5, 0.0] }));
    round_trip(&of(StrintMap { map: [("a".to_owned(), -2)].into() }));
    round_trip(&of(StrfpMap { map: [("a".to_owned(), -2.5)].into() }));
    round_trip(&of(IntintMap { map: [(-3, -2)].into() }));
    round_trip(&of(IntfpMap { map: [(-3, 2.5)].into() }));
    round_trip(&of(IntValue { value: -4 }));
    round_trip(&of(FpValue { value: -4.5 }));
}

#[test]
fn build_script_prints_positions() {
    let out = tempfile::tempdir().expect("a directory");
    let path = out.path().join("app.proto");
    std::fs::write(&path, "syntax = \"proto3\";\nmessage {}").expect("a file");
    let error = configure().out_dir(out.path()).compile(&[&path], &[out.path()]).expect_err("a mistake");
    assert!(matches!(error, Error::Wrong(_)));
    let expected = format!("{}:2:9: error: expected an identifier, but found '{{'", path.display());
    assert_eq!(error.to_string(), expected);
    // Output of `main`.
    assert_eq!(format!("{error:?}"), format!("\n{expected}"));
}

/// The control contracts are stored as Rust code, so that dependents need no generator.
#[test]
fn control_contracts_match_stored_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = ["pathcall/control.proto", "pathcall/function.proto"];
    let set = protox::compile(files, [&root]).expect("the contracts");
    let out = tempfile::tempdir().expect("a directory");
    // Requests and grants are logged; keys must not be.
    let build = tonic_prost_build::configure().skip_debug([".pathcall.v1.TokenKey"]).out_dir(out.path());
    build.compile_fds(set).expect("generated");
    matches_stored(&read(out.path(), "pathcall.v1.rs"), "../proto/src/generated", "pathcall.v1.rs");
}
