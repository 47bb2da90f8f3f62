//! Loader of `.proto` files: compiles them with protox, without `protoc`, and collects the methods with network
//! options. `pathcall/types.proto` and `pathcall/options.proto` are embedded, so that users need no copies.

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use prost_types::FileDescriptorSet;
use prost_types::method_options::IdempotencyLevel;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::diagnostic::{BuildDiagnostic, Location};

/// Full name of the option in `options.proto` that names a filter.
const FILTER_OPTION: &str = "pathcall.filter";
/// Full name of the option in `options.proto` for delegated methods.
const DELEGATE_OPTION: &str = "pathcall.delegate";
/// Full name of the option in `options.proto` for cloned methods.
const CLONE_OPTION: &str = "pathcall.clone";
/// Full name of the option in `options.proto` for placed methods.
const PLACE_OPTION: &str = "pathcall.place";
/// Number of `MethodDescriptorProto.options`, to find the position of the option in the source.
const METHOD_OPTIONS: i32 = 4;

/// Compiled files.
#[cfg_attr(not(feature = "stubs"), expect(dead_code))]
pub(crate) struct Loaded {
    /// Descriptors with comments but without options, for the code generator.
    pub(crate) set: FileDescriptorSet,
    /// Encoded `FileDescriptorSet` with options but without comments, for the program.
    pub(crate) encoded: Vec<u8>,
    /// Files that were read.
    pub(crate) paths: Vec<PathBuf>,
    /// Methods with a filter.
    pub(crate) methods: Vec<FilterMethod>,
    /// Delegated methods.
    pub(crate) delegated: Vec<DelegateOption>,
    /// Methods of a pool of servers.
    pub(crate) cloned: Vec<OptionMethod>,
    /// Methods for a host's accelerator.
    pub(crate) placed: Vec<OptionMethod>,
}

/// Method with a structured option.
pub(crate) struct OptionMethod {
    pub(crate) method: MethodDescriptor,
    /// Value of the option.
    pub(crate) option: DynamicMessage,
    /// Position of the option in the `.proto`.
    pub(crate) at: Location,
    /// Path of the `.proto`.
    pub(crate) proto: PathBuf,
    /// The method has a filter as well.
    pub(crate) filtered: bool,
    /// The method is delegated as well.
    pub(crate) delegated: bool,
}

/// Delegated method.
pub(crate) struct DelegateOption {
    pub(crate) method: MethodDescriptor,
    /// Position of the option in the `.proto`.
    pub(crate) at: Location,
    /// The method has a filter as well.
    pub(crate) filtered: bool,
    /// The method's `idempotency_level` is `NO_SIDE_EFFECTS` or `IDEMPOTENT`.
    pub(crate) idempotent: bool,
}

/// Method with a filter.
pub(crate) struct FilterMethod {
    pub(crate) method: MethodDescriptor,
    /// Name of the filter: `agtr.nf` or `agtr.nf#2`.
    pub(crate) filter: String,
    /// Position of the option in the `.proto`.
    pub(crate) at: Location,
    /// Path of the `.proto`.
    pub(crate) proto: PathBuf,
}

pub(crate) fn load(protos: &[PathBuf], includes: &[PathBuf]) -> Result<Loaded, Box<BuildDiagnostic>> {
    let mut compiler = compile(protos, includes)?;
    let encoded = compiler.encode_file_descriptor_set();
    let set = compiler.include_source_info(true).file_descriptor_set();
    let paths = compiler.files().filter_map(|file| file.path().map(Path::to_path_buf)).collect();
    let pool = compiler.descriptor_pool();
    let (methods, delegated) = (filter_methods(&compiler, &pool), delegated_methods(&compiler, &pool));
    let (cloned, placed) =
        (option_methods(&compiler, &pool, CLONE_OPTION), option_methods(&compiler, &pool, PLACE_OPTION));
    Ok(Loaded { set, encoded, paths, methods, delegated, cloned, placed })
}

/// Compiles these files with their imports.
pub(crate) fn compile(protos: &[PathBuf], includes: &[PathBuf]) -> Result<Compiler, Box<BuildDiagnostic>> {
    let mut resolver = ChainFileResolver::new();
    resolver.add(Embedded);
    for include in includes {
        resolver.add(IncludeFileResolver::new(include.clone()));
    }
    resolver.add(GoogleFileResolver::new());

    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    for proto in protos {
        compiler.open_file(proto).map_err(|error| compile_error(&error, proto, includes))?;
    }
    Ok(compiler)
}

/// Methods with a structured option, in the order of their files.
fn option_methods(compiler: &Compiler, pool: &DescriptorPool, option: &str) -> Vec<OptionMethod> {
    let Some(option) = pool.get_extension_by_name(option) else { return Vec::new() };
    let filter = pool.get_extension_by_name(FILTER_OPTION);
    let delegate = pool.get_extension_by_name(DELEGATE_OPTION);
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let steer = |method: MethodDescriptor| {
        let options = method.options();
        if !options.has_extension(&option) {
            return None;
        }
        let Value::Message(value) = options.get_extension(&option).into_owned() else { return None };
        let filtered = filter.as_ref().is_some_and(|filter| options.has_extension(filter));
        let delegated = delegate.as_ref().is_some_and(|it| options.get_extension(it).as_bool() == Some(true));
        let proto = proto_of(compiler, &method);
        let at = place(&method, &proto, option.number() as i32);
        Some(OptionMethod { option: value, at, proto, filtered, delegated, method })
    };
    methods.filter_map(steer).collect()
}

/// Delegated methods, in the order of their files.
fn delegated_methods(compiler: &Compiler, pool: &DescriptorPool) -> Vec<DelegateOption> {
    let Some(option) = pool.get_extension_by_name(DELEGATE_OPTION) else { return Vec::new() };
    let filter = pool.get_extension_by_name(FILTER_OPTION);
    let is_delegated = |method: &MethodDescriptor| method.options().get_extension(&option).as_bool() == Some(true);
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let mark = |method: MethodDescriptor| DelegateOption {
        at: place(&method, &proto_of(compiler, &method), option.number() as i32),
        filtered: filter.as_ref().is_some_and(|filter| method.options().has_extension(filter)),
        idempotent: is_idempotent(&method),
        method,
    };
    methods.filter(is_delegated).map(mark).collect()
}

/// Whether a method declares that executing a call twice has the same effect as once.
#[must_use]
pub fn is_idempotent(method: &MethodDescriptor) -> bool {
    let level = method.options().get_field_by_name("idempotency_level").and_then(|level| level.as_enum_number());
    level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown as i32)
}

/// Path of the `.proto` that declares a method.
fn proto_of(compiler: &Compiler, method: &MethodDescriptor) -> PathBuf {
    let file = method.parent_file();
    let path = compiler.files().find(|known| known.name() == file.name()).and_then(|known| known.path());
    path.map_or_else(|| PathBuf::from(file.name()), Path::to_path_buf)
}

/// Methods with a filter, in the order of their files.
fn filter_methods(compiler: &Compiler, pool: &DescriptorPool) -> Vec<FilterMethod> {
    // Without its definition, no method can have the option.
    let Some(option) = pool.get_extension_by_name(FILTER_OPTION) else { return Vec::new() };
    let mut methods = Vec::new();
    for service in pool.services() {
        for method in service.methods() {
            let options = method.options();
            if !options.has_extension(&option) {
                continue;
            }
            let Value::String(filter) = options.get_extension(&option).into_owned() else { continue };
            let proto = proto_of(compiler, &method);
            let at = place(&method, &proto, option.number() as i32);
            methods.push(FilterMethod { method, filter, at, proto });
        }
    }
    methods
}

/// Position of the option, or else of the method.
fn place(method: &MethodDescriptor, proto: &Path, option: i32) -> Location {
    let file = method.parent_file();
    let places = file.file_descriptor_proto().source_code_info.as_ref().map_or(&[][..], |info| &info.location);
    let option = [method.path(), &[METHOD_OPTIONS, option]].concat();
    let place = [&option, method.path()].iter().find_map(|path| places.iter().find(|place| place.path == **path));
    let mut at = Location::file(display_path(proto));
    if let Some([line, column, ..]) = place.map(|place| &place.span[..]) {
        (at.line, at.column) = (*line as usize + 1, *column as usize + 1);
    }
    at
}

/// Converts an error of protox, which reports positions through miette; an error without a file concerns `proto`
/// itself.
fn compile_error(error: &protox::Error, proto: &Path, includes: &[PathBuf]) -> Box<BuildDiagnostic> {
    let Some(file) = error.file() else {
        let message = if proto.exists() { "is in none of the include directories" } else { "no such file" };
        return Box::new(BuildDiagnostic::error(Location::file(display_path(proto)), message));
    };
    let mut at = Location::file(on_disk(file, includes));
    let label = error.labels().and_then(|mut labels| labels.next());
    if let (Some(label), Some(source)) = (label, error.source_code())
        && let Ok(contents) = source.read_span(label.inner(), 0, 0)
    {
        (at.line, at.column) = (contents.line() + 1, contents.column() + 1);
    }
    let mut diagnostic = BuildDiagnostic::error(at, error.to_string());
    diagnostic.hint = error.help().map(|help| help.to_string());
    Box::new(diagnostic)
}

/// Path of the file that an import name means.
fn on_disk(name: &str, includes: &[PathBuf]) -> String {
    let found = includes.iter().map(|include| include.join(name)).find(|path| path.exists());
    found.map_or_else(|| name.to_owned(), |path| display_path(&path))
}

/// Path as the user wrote it: without `./`.
pub(crate) fn display_path(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

/// Embedded files, which users import without copies.
struct Embedded;

impl FileResolver for Embedded {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "pathcall/types.proto" => File::from_source(name, include_str!("../proto/pathcall/types.proto")),
            "pathcall/options.proto" => File::from_source(name, include_str!("../proto/pathcall/options.proto")),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}
