//! `pathcall cert`: an authority of one's own, and certificates of it for who takes part.
//!
//! A leaf is good for a day and lies in one file with its key, which is replaced as a whole: services read it again by
//! themselves. Whoever has another issuer (SPIRE, cert-manager, Vault) needs none of this.

mod names;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use pathcall_auth::{Identity, Role};
use pathcall_console::print;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use time::OffsetDateTime;

use crate::failure::Failure;
use names::Leaf;

/// Clocks may differ by so much.
const SKEW: Duration = Duration::from_secs(300);
/// An authority is good for so long.
const AUTHORITY: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The authority's files in its folder.
const AUTHORITY_FILE: &str = "ca.pem";
const AUTHORITY_KEY_FILE: &str = "ca.key";

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an authority: ca.pem, which all trust, and ca.key, which signs
    Init(InitArgs),
    /// Make a certificate for one who takes part, with its key, in a file
    Issue(IssueArgs),
    /// Make certificates anew, for the same names and as long
    Renew(RenewArgs),
}

#[derive(Debug, Args)]
struct FolderArgs {
    /// Folder of the authority
    #[arg(long, value_name = "FOLDER", default_value = "certs")]
    folder: PathBuf,
}

#[derive(Debug, Args)]
struct InitArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Trust domain: the first part of all names
    #[arg(long, value_name = "NAME", default_value = "pathcall")]
    domain: String,
}

#[derive(Debug, Args)]
struct IssueArgs {
    /// What it takes part as: controller, element, server, caller or operator
    role: Role,
    /// Its name among those
    name: String,
    #[command(flatten)]
    folder: FolderArgs,
    /// DNS name that it is reached by too, for clients of its services; may be said again
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// IP address that it is reached by too, for clients of its services; may be said again
    #[arg(long, value_name = "IP")]
    ip: Vec<std::net::IpAddr>,
    /// Hours that it is good for
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    hours: u32,
    /// File to write; ROLE-NAME.pem in the folder, unless given
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct RenewArgs {
    /// Files of certificates
    #[arg(value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    folder: FolderArgs,
    /// Only those that run out within so many hours
    #[arg(long, value_name = "N")]
    within: Option<u32>,
}

pub(crate) fn run(args: &CertArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Init(args) => init(args),
        Command::Issue(args) => issue(args),
        Command::Renew(args) => args.files.iter().try_for_each(|file| renew(args, file)),
    }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    let folder = &args.folder.folder;
    fs::create_dir_all(folder).map_err(|source| Failure::File { path: folder.clone(), source })?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("Pathcall authority of {}", args.domain));
    params.subject_alt_names = vec![uri(&format!("spiffe://{}", args.domain))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    lasting(&mut params, AUTHORITY);
    let certificate = params.self_signed(&key)?;
    let [certificate_file, key_file] = [AUTHORITY_FILE, AUTHORITY_KEY_FILE].map(|name| folder.join(name));
    // Never over another authority: what it signed would be nobody's.
    write_new(&key_file, 0o600, &key.serialize_pem())?;
    write_new(&certificate_file, 0o644, &certificate.pem())?;
    Ok(print(&format!(
        "{}: trusted by all; {}: keep it to yourself\n",
        certificate_file.display(),
        key_file.display()
    ))?)
}

fn issue(args: &IssueArgs) -> Result<(), Failure> {
    let authority = Authority::read(&args.folder.folder)?;
    let identity = Identity::new(args.role, &args.name);
    let spiffe = identity.uri(&authority.domain);
    if Identity::of_uri(&spiffe).is_none() {
        let what = format!("the name {:?}: expected letters, digits, '-', '_', '.', and '/' between parts", args.name);
        return Err(Failure::Certificate(what));
    }
    let mut names = vec![uri(&spiffe)?];
    for dns in &args.dns {
        names.push(SanType::DnsName(dns.as_str().try_into()?));
    }
    names.extend(args.ip.iter().copied().map(SanType::IpAddress));
    let file = args
        .out
        .clone()
        .unwrap_or_else(|| args.folder.folder.join(format!("{}-{}.pem", args.role, args.name.replace('/', "-"))));
    authority.sign(&file, &identity.to_string(), names, Duration::from_secs(u64::from(args.hours) * 3600))
}

fn renew(args: &RenewArgs, file: &Path) -> Result<(), Failure> {
    let leaf = Leaf::read(file)?;
    let left = leaf.until - OffsetDateTime::now_utc();
    if args.within.is_some_and(|hours| left > Duration::from_secs(u64::from(hours) * 3600)) {
        return Ok(());
    }
    Authority::read(&args.folder.folder)?.sign(file, &leaf.subject, leaf.names, leaf.lifetime)
}

/// Who signs.
struct Authority {
    domain: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => Failure::Certificate(format!(
                    "no authority in {}: make one with `pathcall cert init`, or name its folder with --folder",
                    folder.display()
                )),
                _ => Failure::File { path, source },
            })
        };
        let (certificate, key) = (read(AUTHORITY_FILE)?, read(AUTHORITY_KEY_FILE)?);
        let domain = names::domain(&folder.join(AUTHORITY_FILE), &certificate)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
        Ok(Self { domain, issuer })
    }

    /// Makes a certificate and its key, and puts them into a file, in place of what is there, at once.
    fn sign(&self, file: &Path, subject: &str, names: Vec<SanType>, lifetime: Duration) -> Result<(), Failure> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // All of them connect to others, and are connected to.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        lasting(&mut params, lifetime);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        replace(file, &format!("{}{}", certificate.pem(), key.serialize_pem()))?;
        let until = params.not_after.replace_nanosecond(0).unwrap_or(params.not_after);
        Ok(print(&format!("{}: {subject}, until {until}\n", file.display()))?)
    }
}

fn uri(uri: &str) -> Result<SanType, Failure> {
    Ok(SanType::URI(uri.try_into()?))
}

fn lasting(params: &mut CertificateParams, lifetime: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - SKEW;
    params.not_after = now + lifetime;
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// Puts a text into a file that only its owner reads; others see the one before, or this one whole.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    write_new(&beside, 0o600, text)?;
    fs::rename(&beside, path).map_err(|source| Failure::File { path: path.to_owned(), source })
}
