//! Certificates for tests: an authority that signs leaves for roles and names.

use std::path::Path;
use std::time::{Duration, SystemTime};

use pathcall_auth::{AccessTable, Credentials, Identity, IdentityRules, PartyRole, Security};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

/// Trust domain of the certificates.
pub const DOMAIN: &str = "test";

/// Certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Certificate with its key, each in PEM.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Certificate in PEM.
    pub certificate: String,
    /// Private key in PEM.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates a new authority.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Certificate of the authority in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate with a role and a name.
    #[must_use]
    pub fn leaf(&self, role: PartyRole, name: &str) -> Leaf {
        self.signed(&[&Identity::new(role, name).uri(DOMAIN)], &[], Duration::from_secs(86_400))
    }

    /// Issues a certificate with these URIs, DNS names and addresses, valid for `lifetime` from an hour ago.
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

    /// Credentials with this role and name.
    #[must_use]
    pub fn credentials(&self, role: PartyRole, name: &str) -> Credentials {
        let Leaf { certificate, key } = self.leaf(role, name);
        Credentials::pem(&self.pem(), &certificate, &key, IdentityRules::default()).expect("credentials")
    }

    /// Security configuration with such credentials, which grants each role what it needs.
    #[must_use]
    pub fn security(&self, role: PartyRole, name: &str) -> Security {
        Security::new(self.credentials(role, name), AccessTable::default())
    }

    /// Writes the authority's certificate, `ca.pem`, and a leaf with its key, `NAME.pem`, into a folder, and reads
    /// credentials from there.
    #[must_use]
    pub fn files(&self, folder: &Path, role: PartyRole, name: &str) -> Credentials {
        self.write(folder, role, name);
        let (authorities, certificate) = (folder.join("ca.pem"), folder.join(format!("{name}.pem")));
        Credentials::files(authorities, &certificate, &certificate, IdentityRules::default()).expect("credentials")
    }

    /// Replaces the files by new ones with other keys, each atomically.
    pub fn write(&self, folder: &Path, role: PartyRole, name: &str) {
        let Leaf { certificate, key } = self.leaf(role, name);
        for (name, text) in [("ca".to_owned(), self.pem()), (name.to_owned(), certificate + &key)] {
            let (file, beside) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.new")));
            std::fs::write(&beside, text).expect("written");
            std::fs::rename(&beside, &file).expect("replaced");
        }
    }
}
