//! `.proto` files to descriptors: compiled by protox, which needs no `protoc`, with
//! `pathcall/types.proto` and `pathcall/options.proto` served from this crate, so that nobody needs
//! copies of them. Out come the descriptors, and the methods that name a filter.

use std::path::{Path, PathBuf};

use miette::Diagnostic as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor, Value};
use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::diagnostic::{Diagnostic, Location};

/// The full name of the option of `options.proto` that names a filter.
const FILTER_OPTION: &str = "pathcall.filter";
/// The full name of the option of `options.proto` that lets servers pass calls on.
const DELEGATE_OPTION: &str = "pathcall.delegate";
/// The full name of the option of `options.proto` that has a pool of servers answer calls.
const CLONE_OPTION: &str = "pathcall.clone";
/// The full name of the option of `options.proto` that lets a host's accelerator answer calls.
const PLACE_OPTION: &str = "pathcall.place";
/// `MethodDescriptorProto.options`, to find the option's place in the source.
const METHOD_OPTIONS: i32 = 4;

/// Compiled files.
#[cfg_attr(not(feature = "stubs"), expect(dead_code))]
pub(crate) struct Loaded {
    /// Descriptors with comments, for the code generator; options are lost in it.
    pub(crate) set: FileDescriptorSet,
    /// The encoded `FileDescriptorSet` with the options and without comments, for the program.
    pub(crate) encoded: Vec<u8>,
    /// The files that were read.
    pub(crate) paths: Vec<PathBuf>,
    /// The methods that name a filter.
    pub(crate) methods: Vec<Named>,
    /// The methods that may be passed on.
    pub(crate) delegated: Vec<Marked>,
    /// The methods that a pool of servers answers.
    pub(crate) cloned: Vec<Steered>,
    /// The methods that a host's accelerator may answer.
    pub(crate) placed: Vec<Steered>,
}

/// A method with an option that says several things.
pub(crate) struct Steered {
    pub(crate) method: MethodDescriptor,
    /// The option's value.
    pub(crate) says: DynamicMessage,
    /// Where the `.proto` says so.
    pub(crate) at: Location,
    /// The `.proto`.
    pub(crate) proto: PathBuf,
    /// It names a filter, too.
    pub(crate) filtered: bool,
    /// Servers may pass its calls on, too.
    pub(crate) delegated: bool,
}

/// A method that may be passed on.
pub(crate) struct Marked {
    pub(crate) method: MethodDescriptor,
    /// Where the `.proto` says so.
    pub(crate) at: Location,
    /// It names a filter, too.
    pub(crate) filtered: bool,
}

/// A method that names a filter.
pub(crate) struct Named {
    pub(crate) method: MethodDescriptor,
    /// `agtr.nf` or `agtr.nf#2`.
    pub(crate) filter: String,
    /// Where the `.proto` names it.
    pub(crate) at: Location,
    /// The `.proto`.
    pub(crate) proto: PathBuf,
}

pub(crate) fn load(protos: &[PathBuf], includes: &[PathBuf]) -> Result<Loaded, Box<Diagnostic>> {
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
    let encoded = compiler.encode_file_descriptor_set();
    let set = compiler.include_source_info(true).file_descriptor_set();
    let paths = compiler.files().filter_map(|file| file.path().map(Path::to_path_buf)).collect();
    let pool = compiler.descriptor_pool();
    let (methods, delegated) = (named(&compiler, &pool), marked(&compiler, &pool));
    let (cloned, placed) = (steered(&compiler, &pool, CLONE_OPTION), steered(&compiler, &pool, PLACE_OPTION));
    Ok(Loaded { set, encoded, paths, methods, delegated, cloned, placed })
}

/// The methods with such an option, in the order of their files.
fn steered(compiler: &Compiler, pool: &DescriptorPool, option: &str) -> Vec<Steered> {
    let Some(option) = pool.get_extension_by_name(option) else { return Vec::new() };
    let filter = pool.get_extension_by_name(FILTER_OPTION);
    let delegate = pool.get_extension_by_name(DELEGATE_OPTION);
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let steer = |method: MethodDescriptor| {
        let options = method.options();
        if !options.has_extension(&option) {
            return None;
        }
        let Value::Message(says) = options.get_extension(&option).into_owned() else { return None };
        let filtered = filter.as_ref().is_some_and(|filter| options.has_extension(filter));
        let delegated = delegate.as_ref().is_some_and(|it| options.get_extension(it).as_bool() == Some(true));
        let proto = proto_of(compiler, &method);
        let at = place(&method, &proto, option.number() as i32);
        Some(Steered { says, at, proto, filtered, delegated, method })
    };
    methods.filter_map(steer).collect()
}

/// The methods that may be passed on, in the order of their files.
fn marked(compiler: &Compiler, pool: &DescriptorPool) -> Vec<Marked> {
    let Some(option) = pool.get_extension_by_name(DELEGATE_OPTION) else { return Vec::new() };
    let filter = pool.get_extension_by_name(FILTER_OPTION);
    let says = |method: &MethodDescriptor| method.options().get_extension(&option).as_bool() == Some(true);
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let mark = |method: MethodDescriptor| Marked {
        at: place(&method, &proto_of(compiler, &method), option.number() as i32),
        filtered: filter.as_ref().is_some_and(|filter| method.options().has_extension(filter)),
        method,
    };
    methods.filter(says).map(mark).collect()
}

/// The `.proto` that declares a method.
fn proto_of(compiler: &Compiler, method: &MethodDescriptor) -> PathBuf {
    let file = method.parent_file();
    let path = compiler.files().find(|known| known.name() == file.name()).and_then(|known| known.path());
    path.map_or_else(|| PathBuf::from(file.name()), Path::to_path_buf)
}

/// The methods with a filter, in the order of their files.
fn named(compiler: &Compiler, pool: &DescriptorPool) -> Vec<Named> {
    // Without the option's definition nothing can carry the option.
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
            methods.push(Named { method, filter, at, proto });
        }
    }
    methods
}

/// Where the option is written, or at least the method.
fn place(method: &MethodDescriptor, proto: &Path, option: i32) -> Location {
    let file = method.parent_file();
    let places = file.file_descriptor_proto().source_code_info.as_ref().map_or(&[][..], |info| &info.location);
    let option = [method.path(), &[METHOD_OPTIONS, option]].concat();
    let place = [&option, method.path()].iter().find_map(|path| places.iter().find(|place| place.path == **path));
    let mut at = Location::file(shown(proto));
    if let Some([line, column, ..]) = place.map(|place| &place.span[..]) {
        (at.line, at.column) = (*line as usize + 1, *column as usize + 1);
    }
    at
}

/// protox reports places through miette; without a file it is about `proto` itself.
fn compile_error(error: &protox::Error, proto: &Path, includes: &[PathBuf]) -> Box<Diagnostic> {
    let Some(file) = error.file() else {
        let message = if proto.exists() { "is in none of the include directories" } else { "no such file" };
        return Box::new(Diagnostic::error(Location::file(shown(proto)), message));
    };
    let mut at = Location::file(on_disk(file, includes));
    let label = error.labels().and_then(|mut labels| labels.next());
    if let (Some(label), Some(source)) = (label, error.source_code())
        && let Ok(contents) = source.read_span(label.inner(), 0, 0)
    {
        (at.line, at.column) = (contents.line() + 1, contents.column() + 1);
    }
    let mut diagnostic = Diagnostic::error(at, error.to_string());
    diagnostic.hint = error.help().map(|help| help.to_string());
    Box::new(diagnostic)
}

/// The path that an import name stands for.
fn on_disk(name: &str, includes: &[PathBuf]) -> String {
    let found = includes.iter().map(|include| include.join(name)).find(|path| path.exists());
    found.map_or_else(|| name.to_owned(), |path| shown(&path))
}

/// A path as its user wrote it: what is beside `app.proto` is not in `./`.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(".").unwrap_or(path).display().to_string()
}

/// The files that users import and need no copies of.
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
