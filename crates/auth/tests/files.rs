//! Tests of configuration files and certificates: content and errors.

use std::path::Path;
use std::time::Duration;

use pathcall_auth::{Config, ConfigError, Credentials, Identity, IdentityRules, PartyRole};
use pathcall_test_support::certificates::{Authority, Leaf};

/// Configuration from this text, with certificates in the same folder.
fn read(folder: &Path, text: &str) -> Result<Config, ConfigError> {
    let file = folder.join("pathcall.toml");
    std::fs::write(&file, text).unwrap();
    Config::read(&file)
}

const TLS: &str = "[tls]\nauthorities = \"ca.pem\"\ncertificate = \"words.pem\"\n";

#[test]
fn configuration_sets_certificates_identities_and_grants() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().write(folder.path(), PartyRole::Server, "words");
    let config = read(folder.path(), TLS).unwrap();
    assert_eq!(config.credentials.identity(), Some(Identity::new(PartyRole::Server, "words")));
    let operator = Identity::new(PartyRole::Operator, "ann");
    assert!(config.access.allows(&operator, "Controller/Status", None), "needed by the role");

    let text = format!(
        "{TLS}domain = \"elsewhere\"\n[[identity]]\nsubject = \"spiffe://test/pathcall/server/*\"\n\
         role = \"caller\"\nname = \"w\"\n[[allow]]\nrole = \"caller\"\nrpcs = [\"Controller/L*\"]\n\
         applications = [\"Words*\"]\n"
    );
    let config = read(folder.path(), &text).unwrap();
    let caller = Identity::new(PartyRole::Caller, "w");
    assert_eq!(config.credentials.identity(), Some(caller.clone()));
    assert!(config.access.allows(&caller, "Controller/Lookup", Some("Words")));
    assert!(!config.access.allows(&caller, "Controller/Lookup", Some("Votes")));
    assert!(!config.access.allows(&operator, "Controller/Status", None), "not granted");
}

#[test]
fn configuration_error_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().write(folder.path(), PartyRole::Server, "words");
    let said = |text: &str| read(folder.path(), text).unwrap_err().to_string();
    for (text, expected) in [
        (String::new(), "missing field `tls`"),
        (format!("{TLS}colour = 1\n"), "unknown field `colour`"),
        (
            format!("{TLS}[[identity]]\nsubject = \"x\"\nrole = \"root\"\n"),
            "unknown role \"root\" (roles: controller, element",
        ),
        (
            format!("{TLS}[[allow]]\nrole = \"server\"\nrpcs = [\"Controller/Stats\"]\n"),
            "unknown RPC \"Controller/Stats\"",
        ),
        (TLS.replace("words", "votes"), "votes.pem: No such file"),
        (TLS.replace("words", "pathcall"), "pathcall.pem: "),
    ] {
        let said = said(&text);
        assert!(said.contains(expected), "{said}, expected {expected}");
    }
    assert!(said("").starts_with(&folder.path().display().to_string()), "the file is named");
}

#[test]
fn inconsistent_credentials_are_refused() {
    let authority = Authority::new();
    let day = Duration::from_secs(86_400);
    let said = |authorities: &str, certificate: &str, key: &str| {
        Credentials::pem(authorities, certificate, key, IdentityRules::default()).unwrap_err().to_string()
    };
    let Leaf { certificate, key } = authority.leaf(PartyRole::Server, "words");
    assert!(
        said(&Authority::new().pem(), &certificate, &key).contains("certificate: none of the authorities signed it")
    );
    assert!(
        said(&authority.pem(), &certificate, &authority.leaf(PartyRole::Server, "words").key)
            .contains("certificate: the key does not belong to the certificate")
    );
    assert!(said("", &certificate, &key).contains("authorities: contains no certificate in PEM format"));
    assert!(said(&authority.pem(), &key, &key).contains("certificate: contains no certificate in PEM format"));
    assert!(said(&authority.pem(), &certificate, &certificate).contains("key: contains no private key in PEM format"));
    let old = authority.signed(&["spiffe://test/pathcall/server/words"], &[], day / 48);
    assert!(
        said(&authority.pem(), &old.certificate, &old.key).contains("certificate: it has expired"),
        "half an hour ago"
    );
}
