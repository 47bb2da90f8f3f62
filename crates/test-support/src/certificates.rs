//! Certificates for tests: an authority, and leaves of it for roles and names.

use std::path::Path;
use std::time::{Duration, SystemTime};

use pathcall_auth::{Access, Credentials, Identity, Role, Rules, Security};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

/// The trust domain of its certificates.
pub const DOMAIN: &str = "test";

/// Signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, each in PEM.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// One that nobody trusts yet.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate, which others trust, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate that says a role and a name.
    #[must_use]
    pub fn leaf(&self, role: Role, name: &str) -> Leaf {
        self.signed(&[&Identity::new(role, name).uri(DOMAIN)], &[], Duration::from_secs(86_400))
    }

    /// A certificate of these URIs, and of these DNS names and addresses, good for so long from an hour ago.
    #[must_use]
    pub fn signed(&self, uris: &[&str], names: &[&str], lifetime: Duration) -> Leaf {
        let key = KeyPair::generate().expect("a key");
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names");
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI"))));
        let from = SystemTime::now() - Duration::from_secs(3600);
        (params.not_before, params.not_after) = (from.into(), (from + lifetime).into());
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        Leaf { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Credentials of one with this role and name.
    #[must_use]
    pub fn credentials(&self, role: Role, name: &str) -> Credentials {
        let Leaf { certificate, key } = self.leaf(role, name);
        Credentials::pem(&self.pem(), &certificate, &key, Rules::default()).expect("credentials")
    }

    /// Who shows that certificate, and lets each role do what it needs.
    #[must_use]
    pub fn security(&self, role: Role, name: &str) -> Security {
        Security::new(self.credentials(role, name), Access::default())
    }

    /// Writes the authorities, `ca.pem`, and a leaf with its key, `NAME.pem`, into a folder, and reads them from there.
    #[must_use]
    pub fn files(&self, folder: &Path, role: Role, name: &str) -> Credentials {
        self.write(folder, role, name);
        let (authorities, certificate) = (folder.join("ca.pem"), folder.join(format!("{name}.pem")));
        Credentials::files(authorities, &certificate, &certificate, Rules::default()).expect("credentials")
    }

    /// Writes the files anew, with other keys, each at once.
    pub fn write(&self, folder: &Path, role: Role, name: &str) {
        let Leaf { certificate, key } = self.leaf(role, name);
        for (name, text) in [("ca".to_owned(), self.pem()), (name.to_owned(), certificate + &key)] {
            let (file, beside) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.new")));
            std::fs::write(&beside, text).expect("written");
            std::fs::rename(&beside, &file).expect("replaced");
        }
    }
}
