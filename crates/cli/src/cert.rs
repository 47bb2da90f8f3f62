//! Command `pathcall cert`: creates a private certificate authority and issues its certificates.
//!
//! A leaf certificate is valid for a day. One file holds it with its key, and a new one replaces the whole file;
//! services reload the file by themselves. Users of another issuer (SPIRE, cert-manager, Vault) do not need this
//! command.

mod names;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use pathcall_auth::{Identity, PartyRole};
use pathcall_console::print;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use time::OffsetDateTime;

use crate::failure::Failure;
use names::Leaf;

/// Allowed clock difference between hosts.
const SKEW: Duration = Duration::from_secs(300);
/// Lifetime of an authority.
const AUTHORITY: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Files of the authority in its folder.
const AUTHORITY_FILE: &str = "ca.pem";
const AUTHORITY_KEY_FILE: &str = "ca.key";

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create an authority: ca.pem, which all parties trust, and ca.key, which signs
    Init(InitArgs),
    /// Issue a certificate with its key, in one file
    Issue(IssueArgs),
    /// Renew certificates with the same names and lifetime
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
    /// Role of the holder: controller, element, server, caller or operator
    role: PartyRole,
    /// Name of the holder within its role
    name: String,
    #[command(flatten)]
    folder: FolderArgs,
    /// DNS name under which clients reach the holder; may be repeated
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// IP address under which clients reach the holder; may be repeated
    #[arg(long, value_name = "IP")]
    ip: Vec<std::net::IpAddr>,
    /// Lifetime in hours
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=87_600))]
    hours: u32,
    /// Output file [default: ROLE-NAME.pem in the folder]
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct RenewArgs {
    /// Certificate files
    #[arg(value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    folder: FolderArgs,
    /// Renew only certificates that expire within this number of hours
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
    set_lifetime(&mut params, AUTHORITY);
    let certificate = params.self_signed(&key)?;
    let [certificate_file, key_file] = [AUTHORITY_FILE, AUTHORITY_KEY_FILE].map(|name| folder.join(name));
    // Never overwrite another authority: its certificates would become invalid.
    write_new(&key_file, 0o600, &key.serialize_pem())?;
    write_new(&certificate_file, 0o644, &certificate.pem())?;
    Ok(print(&format!(
        "{}: give it to all parties; {}: keep it secret\n",
        certificate_file.display(),
        key_file.display()
    ))?)
}

fn issue(args: &IssueArgs) -> Result<(), Failure> {
    let authority = Authority::read(&args.folder.folder)?;
    let identity = Identity::new(args.role, &args.name);
    let spiffe = identity.uri(&authority.domain);
    if Identity::of_uri(&spiffe).is_none() {
        let what =
            format!("invalid name {:?}: expected letters, digits, '-', '_', '.', and '/' between parts", args.name);
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

/// Authority with its signing key.
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
                    "no authority in {}: make one with `pathcall cert init`, or set its folder with --folder",
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

    /// Creates a certificate with its key and replaces `file` atomically.
    fn sign(&self, file: &Path, subject: &str, names: Vec<SanType>, lifetime: Duration) -> Result<(), Failure> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.subject_alt_names = names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // All parties are TLS servers and TLS clients.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_lifetime(&mut params, lifetime);
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

fn set_lifetime(params: &mut CertificateParams, lifetime: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - SKEW;
    params.not_after = now + lifetime;
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| Failure::File { path: path.to_owned(), source })
}

/// Replaces a file, readable only by its owner, atomically.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    write_new(&beside, 0o600, text)?;
    fs::rename(&beside, path).map_err(|source| Failure::File { path: path.to_owned(), source })
}
