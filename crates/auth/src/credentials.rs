//! Credentials of one party: its certificate and key, and the authorities that it trusts.
//!
//! Certificates may be short-lived: with each new connection, at most once a second, the files are checked and read
//! again if they have changed. If the new files are invalid, an error is logged and the previous credentials stay in
//! use. Open connections are not affected.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use webpki::{EndEntityCert, KeyUsage};

use crate::target::ExpectedPeer;
use crate::verify::PeerVerifier;
use crate::{Identity, IdentityRules};

/// Protocol within TLS.
const PROTOCOL: &[u8] = b"h2";
/// Minimum interval between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Certificate with its key, and trusted authorities. Clones share state.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    source: Source,
    rules: IdentityRules,
    current: Mutex<Current>,
}

enum Source {
    /// PEM files: the authorities, the certificate chain, the key.
    Files([PathBuf; 3]),
    Pem,
}

struct Current {
    material: Arc<LoadedCredentials>,
    /// Time of the last check, and the files' timestamps and sizes at that time.
    checked_at: Instant,
    stamps: Option<FileStamps>,
}

type FileStamps = [(SystemTime, u64); 3];

/// Loaded credentials.
pub(crate) struct LoadedCredentials {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    server: Arc<ServerConfig>,
    identity: Option<Identity>,
}

/// Error of invalid credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A PEM text has no item of the required type.
    #[error("{of}: contains no {what} in PEM format")]
    Pem {
        /// File, or kind of text.
        of: String,
        /// Missing item: certificate or key.
        what: &'static str,
    },
    /// Certificate, key and authorities do not match.
    #[error("{of}: {why}")]
    Unusable {
        /// File of the certificate.
        of: String,
        /// Reason.
        why: String,
    },
}

impl Credentials {
    /// Credentials from PEM files: the trusted authorities, the certificate (followed by intermediate ones), and its
    /// key, which may be in the certificate's file.
    ///
    /// # Errors
    /// A file cannot be read, the key does not belong to the certificate, or the certificate is expired or not signed
    /// by the authorities.
    pub fn files(
        authorities: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        rules: IdentityRules,
    ) -> Result<Self, CredentialsError> {
        let files = [authorities.into(), certificate.into(), key.into()];
        // Before the files are read: later changes are then detected.
        let stamps = stamps(&files);
        let material = read(&files, &rules)?;
        Ok(Self::new(Source::Files(files), rules, material, stamps))
    }

    /// Credentials from PEM texts, which never change.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub fn pem(
        authorities: &str,
        certificate: &str,
        key: &str,
        rules: IdentityRules,
    ) -> Result<Self, CredentialsError> {
        let of = ["authorities", "certificate", "key"].map(str::to_owned);
        let material = LoadedCredentials::new([authorities, certificate, key].map(str::as_bytes), of, &rules)?;
        Ok(Self::new(Source::Pem, rules, material, None))
    }

    fn new(source: Source, rules: IdentityRules, material: LoadedCredentials, stamps: Option<FileStamps>) -> Self {
        let current = Current { material: Arc::new(material), checked_at: Instant::now(), stamps };
        Self(Arc::new(Inner { source, rules, current: Mutex::new(current) }))
    }

    /// Identity in the certificate, if it has one.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.material().identity.clone()
    }

    /// Checks the files now. They are also checked when connections are made.
    pub fn reload_if_changed(&self) {
        self.current(Duration::ZERO);
    }

    pub(crate) fn rules(&self) -> &IdentityRules {
        &self.0.rules
    }

    pub(crate) fn material(&self) -> Arc<LoadedCredentials> {
        self.current(CHECK_INTERVAL)
    }

    fn current(&self, every: Duration) -> Arc<LoadedCredentials> {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Source::Files(files) = &self.0.source
            && current.checked_at.elapsed() >= every
        {
            current.checked_at = Instant::now();
            let stamps = stamps(files);
            if stamps != current.stamps {
                match read(files, &self.0.rules) {
                    Ok(material) => {
                        current.material = Arc::new(material);
                        tracing::info!("reloaded certificates: {}", files[1].display());
                    }
                    Err(error) => {
                        tracing::warn!("cannot use the changed certificates: {error}; the previous ones stay in use");
                    }
                }
                current.stamps = stamps;
            }
        }
        Arc::clone(&current.material)
    }

    /// Configuration for accepting connections.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.material().server)
    }

    /// Configuration for connections to `peer`.
    pub(crate) fn client(&self, peer: &ExpectedPeer) -> Result<ClientConfig, rustls::Error> {
        let material = self.material();
        let verifier = PeerVerifier::new(&material, self.0.rules.clone(), peer.clone());
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&material.provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(material.chain.clone(), material.key.clone_key())?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credentials").field(&self.identity()).finish()
    }
}

/// Timestamps and sizes of files; `None` if a file does not exist.
fn stamps(files: &[PathBuf; 3]) -> Option<FileStamps> {
    let stamp = |path: &PathBuf| {
        let metadata = path.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let [authorities, certificate, key] = files.each_ref().map(stamp);
    Some([authorities?, certificate?, key?])
}

fn read(files: &[PathBuf; 3], rules: &IdentityRules) -> Result<LoadedCredentials, CredentialsError> {
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|source| CredentialsError::File { path: path.clone(), source });
    let texts = [read(&files[0])?, read(&files[1])?, read(&files[2])?];
    LoadedCredentials::new(
        texts.each_ref().map(Vec::as_slice),
        files.each_ref().map(|path| path.display().to_string()),
        rules,
    )
}

impl LoadedCredentials {
    /// Loads credentials from PEM texts with their names: authorities, certificate, key.
    fn new(texts: [&[u8]; 3], of: [String; 3], rules: &IdentityRules) -> Result<Self, CredentialsError> {
        let [of_authorities, of_certificate, of_key] = of;
        let mut roots = RootCertStore::empty();
        for authority in certificates(texts[0], &of_authorities)? {
            roots
                .add(authority)
                .map_err(|error| CredentialsError::Unusable { of: of_authorities.clone(), why: error.to_string() })?;
        }
        let chain = certificates(texts[1], &of_certificate)?;
        let key = PrivateKeyDer::from_pem_slice(texts[2]);
        let key = key.map_err(|_| CredentialsError::Pem { of: of_key, what: "private key" })?;
        let identity = rules.identify(&chain[0]);
        let unusable = |why| CredentialsError::Unusable { of: of_certificate, why };
        valid_now(&chain, &roots)
            .map_err(str::to_owned)
            .and_then(|()| Self::build(roots, chain, key, identity))
            .map_err(unusable)
    }

    fn build(
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        identity: Option<Identity>,
    ) -> Result<Self, String> {
        let describe = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
            error => error.to_string(),
        };
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let clients = clients.map_err(|error| error.to_string())?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(describe)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(describe)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { provider, roots, chain, key, server: Arc::new(server), identity })
    }
}

fn certificates(text: &[u8], of: &str) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = read.ok().filter(|certificates| !certificates.is_empty());
    found.ok_or_else(|| CredentialsError::Pem { of: of.to_owned(), what: "certificate" })
}

/// Checks the party's own certificate, too: an error at the start is better than one at each peer.
fn valid_now(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Result<(), &'static str> {
    let certificate = EndEntityCert::try_from(&chain[0]).map_err(|_| "it is not a certificate")?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let of_usage = |usage| {
        certificate
            .verify_for_usage(algorithms, &roots.roots, &chain[1..], UnixTime::now(), usage, None, None)
            .map(drop)
    };
    let valid = of_usage(KeyUsage::server_auth()).or_else(|_| of_usage(KeyUsage::client_auth()));
    valid.map_err(|error| match error {
        webpki::Error::CertExpired { .. } => "it has expired: renew it",
        webpki::Error::CertNotValidYet { .. } => "it is not valid yet: is the clock of this machine right?",
        _ => "none of the authorities signed it, or it was issued for another purpose",
    })
}
