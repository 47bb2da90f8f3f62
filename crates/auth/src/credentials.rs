//! Credentials of one party: its certificate and key, and the authorities that it trusts.
//!
//! Certificates are short-lived: files are looked at, once a second at most, whenever a connection is made, and read again when
//! they have changed. What can't be used is said, and what was there before stays in use. Connections that are open stay so.

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

use crate::target::Peer;
use crate::verify::PeerVerifier;
use crate::{Identity, Rules};

/// What is spoken within TLS.
const PROTOCOL: &[u8] = b"h2";
/// Files are looked at this often at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate, its key, and the authorities that are trusted. Clones are the same.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    source: Source,
    rules: Rules,
    current: Mutex<Current>,
}

enum Source {
    /// PEM files: the authorities, the certificate and those between it and them, the key.
    Files([PathBuf; 3]),
    Pem,
}

struct Current {
    material: Arc<Material>,
    /// When, and of what times the files were, when they were last looked at.
    looked: Instant,
    stamps: Option<Stamps>,
}

type Stamps = [(SystemTime, u64); 3];

/// What credentials are at a time.
pub(crate) struct Material {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    server: Arc<ServerConfig>,
    identity: Option<Identity>,
}

/// Why credentials can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file can't be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing of what should be there.
    #[error("{of}: no {what} in PEM")]
    Pem {
        /// Where it should be.
        of: String,
        /// Certificates, or a key.
        what: &'static str,
    },
    /// Certificate, key and authorities do not fit together.
    #[error("{of}: {why}")]
    Unusable {
        /// The certificate's file.
        of: String,
        /// Why.
        why: String,
    },
}

impl Credentials {
    /// From PEM files: the authorities that are trusted, the certificate (with those between it and an authority behind it),
    /// and its key, which may be in the certificate's file.
    ///
    /// # Errors
    /// When a file can't be read, the key is another certificate's, or the certificate is none of the authorities' or has run out.
    pub fn files(
        authorities: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        rules: Rules,
    ) -> Result<Self, CredentialsError> {
        let files = [authorities.into(), certificate.into(), key.into()];
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(&files);
        let material = read(&files, &rules)?;
        Ok(Self::new(Source::Files(files), rules, material, stamps))
    }

    /// From texts in PEM, which never change.
    ///
    /// # Errors
    /// As of [`files`](Self::files).
    pub fn pem(authorities: &str, certificate: &str, key: &str, rules: Rules) -> Result<Self, CredentialsError> {
        let of = ["authorities", "certificate", "key"].map(str::to_owned);
        let material = Material::new([authorities, certificate, key].map(str::as_bytes), of, &rules)?;
        Ok(Self::new(Source::Pem, rules, material, None))
    }

    fn new(source: Source, rules: Rules, material: Material, stamps: Option<Stamps>) -> Self {
        let current = Current { material: Arc::new(material), looked: Instant::now(), stamps };
        Self(Arc::new(Inner { source, rules, current: Mutex::new(current) }))
    }

    /// Who the certificate is of, if it says so.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.material().identity.clone()
    }

    /// Has files looked at now, whenever they last were; they are when connections are made, too.
    pub fn look(&self) {
        self.current(Duration::ZERO);
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.0.rules
    }

    pub(crate) fn material(&self) -> Arc<Material> {
        self.current(LOOK_EVERY)
    }

    fn current(&self, every: Duration) -> Arc<Material> {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Source::Files(files) = &self.0.source
            && current.looked.elapsed() >= every
        {
            current.looked = Instant::now();
            let stamps = stamps(files);
            if stamps != current.stamps {
                match read(files, &self.0.rules) {
                    Ok(material) => {
                        current.material = Arc::new(material);
                        tracing::info!("certificates are read again: {}", files[1].display());
                    }
                    Err(error) => {
                        tracing::warn!(
                            "certificates that have changed can't be used: {error}; those before are in use"
                        );
                    }
                }
                current.stamps = stamps;
            }
        }
        Arc::clone(&current.material)
    }

    /// What a connection is taken with.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.material().server)
    }

    /// What a connection to `peer` is made with.
    pub(crate) fn client(&self, peer: &Peer) -> Result<ClientConfig, rustls::Error> {
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

/// Times and lengths of files; `None`: one is not there.
fn stamps(files: &[PathBuf; 3]) -> Option<Stamps> {
    let stamp = |path: &PathBuf| {
        let metadata = path.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    let [authorities, certificate, key] = files.each_ref().map(stamp);
    Some([authorities?, certificate?, key?])
}

fn read(files: &[PathBuf; 3], rules: &Rules) -> Result<Material, CredentialsError> {
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|source| CredentialsError::File { path: path.clone(), source });
    let texts = [read(&files[0])?, read(&files[1])?, read(&files[2])?];
    Material::new(texts.each_ref().map(Vec::as_slice), files.each_ref().map(|path| path.display().to_string()), rules)
}

impl Material {
    /// From texts in PEM, and what to call them: the authorities, the certificate, the key.
    fn new(texts: [&[u8]; 3], of: [String; 3], rules: &Rules) -> Result<Self, CredentialsError> {
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
            .and_then(|()| Self::fit(roots, chain, key, identity))
            .map_err(unusable)
    }

    fn fit(
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        identity: Option<Identity>,
    ) -> Result<Self, String> {
        let said = |error: rustls::Error| match error {
            rustls::Error::InconsistentKeys(_) => "the key is another certificate's".to_owned(),
            error => error.to_string(),
        };
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let clients = clients.map_err(|error| error.to_string())?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(said)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(said)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { provider, roots, chain, key, server: Arc::new(server), identity })
    }
}

fn certificates(text: &[u8], of: &str) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = read.ok().filter(|certificates| !certificates.is_empty());
    found.ok_or_else(|| CredentialsError::Pem { of: of.to_owned(), what: "certificate" })
}

/// One's own certificate is looked at, too: better said at the start than by each peer.
fn valid_now(chain: &[CertificateDer<'_>], roots: &RootCertStore) -> Result<(), &'static str> {
    let certificate = EndEntityCert::try_from(&chain[0]).map_err(|_| "it is no certificate")?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    let of_usage = |usage| {
        certificate
            .verify_for_usage(algorithms, &roots.roots, &chain[1..], UnixTime::now(), usage, None, None)
            .map(drop)
    };
    let valid = of_usage(KeyUsage::server_auth()).or_else(|_| of_usage(KeyUsage::client_auth()));
    valid.map_err(|error| match error {
        webpki::Error::CertExpired { .. } => "it has run out: renew it",
        webpki::Error::CertNotValidYet { .. } => "it is not valid yet: is the clock of this machine right?",
        _ => "none of the authorities has signed it, or it is for something else",
    })
}
