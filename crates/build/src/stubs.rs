//! Generation of stubs and manifests in a build script.
//!
//! Each delegated method has a type, which carries the types of its messages: so the compiler checks the requests that
//! handlers pass on. Messages have the names of prost.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use prost_build::{Module, Service, ServiceGenerator};
use prost_types::FileDescriptorSet;

use crate::diagnostic::BuildDiagnostic;
use crate::{generate, load, owned, resolve};

/// Packages of Pathcall and of protobuf, for which nothing is generated.
const FOREIGN_PACKAGES: [&str; 2] = ["pathcall", "google.protobuf"];

/// Compiles `.proto` files with their filters, for `build.rs`. Paths of filters are relative to the `.proto` that names
/// them; `pathcall/types.proto` and `pathcall/options.proto` are built in.
///
/// Tells Cargo to run `build.rs` again when one of these files changes, except for files in `OUT_DIR`: a script that
/// generates such a file prints `cargo::rerun-if-changed` for the sources of that file.
///
/// # Errors
/// Returns all errors in the files, or the reason for which a file could not be written.
pub fn compile(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
    configure().compile(protos, includes)
}

/// Returns a builder for [`compile`] with options.
#[must_use]
pub fn configure() -> Builder {
    let tonic = tonic_prost_build::configure();
    Builder { tonic, out_dir: None, descriptor_set: None, runtime: String::new(), extern_paths: Vec::new() }
        .runtime("::pathcall")
}

/// Options of [`compile`].
#[derive(Debug, Clone)]
pub struct Builder {
    tonic: tonic_prost_build::Builder,
    out_dir: Option<PathBuf>,
    descriptor_set: Option<PathBuf>,
    runtime: String,
    /// Protobuf names with the Rust paths of their types.
    extern_paths: Vec<(String, String)>,
}

impl Builder {
    /// Changes the settings of tonic's generator. Output directory, extern paths and descriptor file must be set on
    /// this builder instead.
    #[must_use]
    pub fn tonic(self, change: impl FnOnce(tonic_prost_build::Builder) -> tonic_prost_build::Builder) -> Self {
        Self { tonic: change(self.tonic), ..self }
    }

    /// Sets the output directory. Default: `OUT_DIR`.
    #[must_use]
    pub fn out_dir(self, directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref().to_path_buf();
        Self { tonic: self.tonic.out_dir(&directory), out_dir: Some(directory), ..self }
    }

    /// Also writes the descriptors to this file, for a reflection service. A program has them without a file in the
    /// manifest's `descriptor`.
    #[must_use]
    pub fn file_descriptor_set_path(self, path: impl AsRef<Path>) -> Self {
        Self { descriptor_set: Some(path.as_ref().to_path_buf()), ..self }
    }

    /// Uses existing types at a Rust path, such as `::common::proto`, for a protobuf name and the names below it, such
    /// as `.common`, instead of generating them.
    #[must_use]
    pub fn extern_path(mut self, proto: impl Into<String>, rust: impl Into<String>) -> Self {
        let (proto, rust) = (proto.into(), rust.into());
        self.tonic = self.tonic.extern_path(&proto, &rust);
        self.extern_paths.push((proto, rust));
        self
    }

    /// Sets the crate with the modules `types` and `manifest`, whose codec the stubs use. Default: `::pathcall`.
    #[must_use]
    pub fn runtime(self, path: impl Into<String>) -> Self {
        let runtime = path.into();
        Self { tonic: self.tonic.codec_path(format!("{runtime}::types::Codec")), runtime, ..self }
    }

    /// See [`compile`].
    ///
    /// # Errors
    /// As [`compile`].
    pub fn compile(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<(), Error> {
        let out_dir = self.out_dir.or_else(|| std::env::var_os("OUT_DIR").map(PathBuf::from)).ok_or(Error::NoOutDir)?;
        // Cargo runs a failed build script again in any case.
        let loaded = load::load(&owned(protos), &owned(includes)).map_err(|problem| Error::Wrong(vec![*problem]))?;
        rerun_if_changed(&loaded.paths);
        let resolved = resolve::resolve(&loaded);
        rerun_if_changed(&resolved.files);
        if resolved.has_errors() {
            return Err(Error::Wrong(resolved.problems));
        }
        for warning in &resolved.problems {
            println!("cargo:warning={}", warning.to_string().replace('\n', " "));
        }

        if let Some(path) = &self.descriptor_set {
            write(path, &loaded.encoded)?;
        }
        let packages: BTreeSet<String> = loaded.set.file.iter().map(|file| file.package().to_owned()).collect();
        let typed = format!("{}::types", self.runtime);
        let mut extern_paths = self.extern_paths;
        extern_paths.push((".pathcall".to_owned(), typed.clone()));
        let names = match resolved.delegated.is_empty() {
            true => MessageTypePaths::default(),
            false => types(&loaded.set, &extern_paths).map_err(Error::Stubs)?,
        };
        self.tonic.extern_path(".pathcall", typed).compile_fds(loaded.set).map_err(Error::Stubs)?;
        for package in packages.iter().filter(|package| !FOREIGN_PACKAGES.contains(&package.as_str())) {
            let methods: Vec<_> = resolved.methods.iter().filter(|method| method.package == *package).collect();
            let stubs = prost_build::Module::from_protobuf_package_name(package).to_file_name_or("_");
            let name = stubs.trim_end_matches(".rs");
            let descriptor = format!("{name}.pathcall.bin");
            let delegated: Vec<_> = resolved.delegated.iter().filter(|method| method.package == *package).collect();
            let cloned: Vec<_> = resolved.cloned.iter().filter(|method| method.package == *package).collect();
            let placed: Vec<_> = resolved.placed.iter().filter(|method| method.package == *package).collect();
            let asked =
                generate::PackageMethods { methods: &methods, delegated: &delegated, cloned: &cloned, placed: &placed };
            let manifest = generate::manifest(package, &asked, &names, &self.runtime, &descriptor);
            write(&out_dir.join(descriptor), &loaded.encoded)?;
            write(&out_dir.join(format!("{name}.pathcall.rs")), manifest.as_bytes())?;
        }
        Ok(())
    }
}

/// Message types of methods, as Rust paths in the module of their package.
pub(crate) type MessageTypePaths = HashMap<(String, String, String), (String, String)>;

/// Message types of all methods, by package, service and method.
fn types(set: &FileDescriptorSet, extern_paths: &[(String, String)]) -> std::io::Result<MessageTypePaths> {
    let types = Rc::new(RefCell::new(MessageTypePaths::new()));
    let mut config = prost_build::Config::new();
    for (proto, rust) in extern_paths {
        config.extern_path(proto, rust);
    }
    config.service_generator(Box::new(MessageTypes(Rc::clone(&types))));
    let module = |file: &prost_types::FileDescriptorProto| Module::from_protobuf_package_name(file.package());
    config.generate(set.file.iter().map(|file| (module(file), file.clone())).collect())?;
    drop(config);
    Ok(Rc::try_unwrap(types).unwrap_or_default().into_inner())
}

/// Records prost's names of the methods' messages.
struct MessageTypes(Rc<RefCell<MessageTypePaths>>);

impl ServiceGenerator for MessageTypes {
    fn generate(&mut self, service: Service, _: &mut String) {
        for method in service.methods {
            let key = (service.package.clone(), service.proto_name.clone(), method.proto_name);
            self.0.borrow_mut().insert(key, (method.input_type, method.output_type));
        }
    }
}

/// Reason for which nothing was generated.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files have errors.
    #[error("{}", lines(.0))]
    Wrong(Vec<BuildDiagnostic>),
    /// tonic's generator failed.
    #[error("cannot generate stubs: {0}")]
    Stubs(#[source] std::io::Error),
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Called outside of a build script.
    #[error("OUT_DIR is not set: call compile from build.rs, or name a directory with out_dir")]
    NoOutDir,
}

/// Same as `Display`: `main` of a build script prints an error's `Debug` form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Wrong(_) = self {
            // On a new line after "Error:", so that tools find file and line.
            writeln!(f)?;
        }
        write!(f, "{self}")
    }
}

fn lines(problems: &[BuildDiagnostic]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn rerun_if_changed(paths: &[impl AsRef<Path>]) {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    for path in watched(paths, out.as_deref()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

/// All paths except those that a build script has written itself: such a file is newer than the run that wrote it, and
/// every build would detect a change.
fn watched<'a>(paths: &'a [impl AsRef<Path>], out: Option<&'a Path>) -> impl Iterator<Item = &'a Path> {
    let own = move |path: &Path| out.is_some_and(|out| path.starts_with(out));
    paths.iter().map(AsRef::as_ref).filter(move |path| !own(path))
}

/// Writes a file unless it has this content already: an older time stamp avoids a rebuild.
fn write(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if std::fs::read(path).is_ok_and(|present| present == contents) {
        return Ok(());
    }
    std::fs::write(path, contents).map_err(|source| Error::Write { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_do_not_trigger_rebuild() {
        let paths = ["proto/app.proto", "/target/out/made.proto", "/target/outside.proto"];
        let watched =
            |out: Option<&str>| watched(&paths, out.map(Path::new)).map(Path::to_path_buf).collect::<Vec<_>>();
        assert_eq!(watched(Some("/target/out")), [paths[0], paths[2]].map(PathBuf::from));
        assert_eq!(watched(None), paths.map(PathBuf::from));
    }
}
