//! Configuration files, and the certificates that they name: what is read, and what is said of mistakes.

use std::path::Path;
use std::time::Duration;

use pathcall_auth::{Config, ConfigError, Credentials, Identity, Role, Rules};
use pathcall_test_support::certificates::{Authority, Leaf};

/// What the file comes to, with certificates beside it.
fn read(folder: &Path, text: &str) -> Result<Config, ConfigError> {
    let file = folder.join("pathcall.toml");
    std::fs::write(&file, text).unwrap();
    Config::read(&file)
}

const TLS: &str = "[tls]\nauthorities = \"ca.pem\"\ncertificate = \"words.pem\"\n";

#[test]
fn configuration_names_certificates_identities_and_grants() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().write(folder.path(), Role::Server, "words");
    let config = read(folder.path(), TLS).unwrap();
    assert_eq!(config.credentials.identity(), Some(Identity::new(Role::Server, "words")));
    let operator = Identity::new(Role::Operator, "ann");
    assert!(config.access.allows(&operator, "Controller/Status", None), "what the role needs");

    let text = format!(
        "{TLS}domain = \"elsewhere\"\n[[identity]]\nsubject = \"spiffe://test/pathcall/server/*\"\nrole = \"caller\"\nname = \"w\"\n\
         [[allow]]\nrole = \"caller\"\nrpcs = [\"Controller/L*\"]\napplications = [\"Words*\"]\n"
    );
    let config = read(folder.path(), &text).unwrap();
    let caller = Identity::new(Role::Caller, "w");
    assert_eq!(config.credentials.identity(), Some(caller.clone()));
    assert!(config.access.allows(&caller, "Controller/Lookup", Some("Words")));
    assert!(!config.access.allows(&caller, "Controller/Lookup", Some("Votes")));
    assert!(!config.access.allows(&operator, "Controller/Status", None), "not granted");
}

#[test]
fn mistakes_in_a_configuration_are_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    Authority::new().write(folder.path(), Role::Server, "words");
    let said = |text: &str| read(folder.path(), text).unwrap_err().to_string();
    for (text, expected) in [
        (String::new(), "missing field `tls`"),
        (format!("{TLS}colour = 1\n"), "unknown field `colour`"),
        (
            format!("{TLS}[[identity]]\nsubject = \"x\"\nrole = \"root\"\n"),
            "no role \"root\": there are controller, element",
        ),
        (
            format!("{TLS}[[allow]]\nrole = \"server\"\nrpcs = [\"Controller/Stats\"]\n"),
            "no RPC is \"Controller/Stats\"",
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
fn credentials_that_do_not_fit_are_refused() {
    let authority = Authority::new();
    let day = Duration::from_secs(86_400);
    let said = |authorities: &str, certificate: &str, key: &str| {
        Credentials::pem(authorities, certificate, key, Rules::default()).unwrap_err().to_string()
    };
    let Leaf { certificate, key } = authority.leaf(Role::Server, "words");
    assert!(
        said(&Authority::new().pem(), &certificate, &key)
            .contains("certificate: none of the authorities has signed it")
    );
    assert!(
        said(&authority.pem(), &certificate, &authority.leaf(Role::Server, "words").key)
            .contains("certificate: the key is another certificate's")
    );
    assert!(said("", &certificate, &key).contains("authorities: no certificate in PEM"));
    assert!(said(&authority.pem(), &key, &key).contains("certificate: no certificate in PEM"));
    assert!(said(&authority.pem(), &certificate, &certificate).contains("key: no private key in PEM"));
    let old = authority.signed(&["spiffe://test/pathcall/server/words"], &[], day / 48);
    assert!(
        said(&authority.pem(), &old.certificate, &old.key).contains("certificate: it has run out"),
        "half an hour ago"
    );
}
