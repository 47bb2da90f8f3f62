//! Names and lifetime of an existing certificate.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use rcgen::SanType;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use super::SKEW;
use crate::failure::Failure;

/// Certificate that is to be renewed.
pub(super) struct Leaf {
    /// Common name.
    pub(super) subject: String,
    pub(super) names: Vec<SanType>,
    pub(super) lifetime: Duration,
    pub(super) until: OffsetDateTime,
}

impl Leaf {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
        parsed(path, &text, |certificate| {
            let subject = certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
            let subject = subject.unwrap_or_default().to_owned();
            let names: Result<Vec<_>, Failure> = alternative(certificate).iter().filter_map(name).collect();
            let validity = certificate.validity();
            let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
            let lifetime = Duration::try_from(until - from).unwrap_or_default().saturating_sub(SKEW);
            Ok(Self { subject, names: names?, lifetime, until })
        })
    }
}

/// Trust domain of an authority.
pub(super) fn domain(path: &Path, text: &str) -> Result<String, Failure> {
    parsed(path, text, |certificate| {
        let uris = alternative(certificate).iter().filter_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix("spiffe://"),
            _ => None,
        });
        let domain = uris.map(str::to_owned).next();
        domain.ok_or_else(|| Failure::Certificate(format!("{}: the certificate has no trust domain", path.display())))
    })
}

fn parsed<T>(
    path: &Path,
    text: &str,
    take: impl FnOnce(&X509Certificate<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let none = || Failure::Certificate(format!("{}: not a certificate in PEM format", path.display()));
    let mut pems = Pem::iter_from_buffer(text.as_bytes()).filter_map(Result::ok);
    let pem = pems.find(|pem| pem.label == "CERTIFICATE").ok_or_else(none)?;
    take(&pem.parse_x509().map_err(|_| none())?)
}

fn alternative<'a>(certificate: &'a X509Certificate<'_>) -> &'a [GeneralName<'a>] {
    let names = certificate.subject_alternative_name().ok().flatten();
    names.map_or(&[], |names| &names.value.general_names)
}

/// Converts a name for the renewed certificate; kinds that Pathcall does not issue are left out.
fn name(name: &GeneralName<'_>) -> Option<Result<SanType, Failure>> {
    Some(match name {
        GeneralName::URI(uri) => super::uri(uri),
        GeneralName::DNSName(dns) => (*dns).try_into().map(SanType::DnsName).map_err(Failure::from),
        GeneralName::IPAddress(bytes) => Ok(SanType::IpAddress(address(bytes)?)),
        _ => return None,
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
