//! Verifier of a server's certificate.
//!
//! A certificate with a role is valid for peers of that role at any address. A certificate without a role must be valid
//! for the name or address of the connection, as usual.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::credentials::LoadedCredentials;
use crate::target::ExpectedPeer;
use crate::{Identity, IdentityRules};

#[derive(Debug)]
pub(crate) struct PeerVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    rules: IdentityRules,
    peer: ExpectedPeer,
}

impl PeerVerifier {
    pub(crate) fn new(material: &LoadedCredentials, rules: IdentityRules, peer: ExpectedPeer) -> Self {
        Self { roots: Arc::clone(&material.roots), provider: Arc::clone(&material.provider), rules, peer }
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        match self.rules.identify(end_entity) {
            Some(identity) => self.peer.is(&identity).map_err(Error::General)?,
            None => verify_server_name(&certificate, server_name)?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ExpectedPeer {
    /// Checks the identity of the peer; returns a message if another one is expected.
    fn is(&self, identity: &Identity) -> Result<(), String> {
        let expected = self.role == identity.role || self.or == Some(identity.role);
        match &self.name {
            _ if !expected => Err(format!("the certificate belongs to {identity}, expected the role {}", self.role)),
            Some(name) if *name != identity.name => {
                Err(format!("the certificate belongs to {identity}, expected {} {name}", self.role))
            }
            _ => Ok(()),
        }
    }
}
