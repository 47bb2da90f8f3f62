//! Tests of `pathcall cert`, and of commands that use certificates: arguments and output.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use pathcall_auth::{Credentials, Identity, IdentityRules, PartyRole};
use pathcall_test_support::process::{Process, until};
use x509_parser::extensions::GeneralName;

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(crate::PATHCALL);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env_remove("PATHCALL_TLS");
    let Output { status, stdout, stderr } = command.output().expect("the command is built");
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code().unwrap(), stdout, stderr)
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (status, stdout, stderr) = run(folder, arguments);
    assert_eq!((status, stderr.as_str()), (0, ""), "{arguments:?}");
    stdout
}

fn credentials(folder: &Path, file: &str) -> Credentials {
    let (authorities, file) = (folder.join("certs/ca.pem"), folder.join("certs").join(file));
    Credentials::files(authorities, &file, &file, IdentityRules::default().domain("corp.example"))
        .expect("valid credentials")
}

/// Folder with an authority, and certificates and configurations of a controller, an element and an operator.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &["cert", "init", "--domain", "corp.example"]);
    for role in ["controller", "element", "operator"] {
        succeed(folder.path(), &["cert", "issue", role, "one"]);
        let text = format!("[tls]\nauthorities = \"certs/ca.pem\"\ncertificate = \"certs/{role}-one.pem\"\n");
        std::fs::write(folder.path().join(format!("{role}.toml")), text).unwrap();
    }
    folder
}

#[test]
fn issued_certificate_is_renewed_with_its_names() {
    let folder = folder();
    let at = folder.path();
    let printed = succeed(
        at,
        &["cert", "issue", "server", "rack/words-1", "--dns", "words.example", "--ip", "10.0.0.7", "--hours", "2"],
    );
    assert!(printed.starts_with("certs/server-rack-words-1.pem: server rack/words-1, until 20"), "{printed}");
    let file = at.join("certs/server-rack-words-1.pem");
    let before = std::fs::read(&file).unwrap();
    assert_eq!(
        credentials(at, "server-rack-words-1.pem").identity(),
        Some(Identity::new(PartyRole::Server, "rack/words-1"))
    );
    // The certificate is not due for renewal yet.
    assert_eq!(succeed(at, &["cert", "renew", "certs/server-rack-words-1.pem", "--within", "1"]), "");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let printed = succeed(at, &["cert", "renew", "certs/server-rack-words-1.pem", "--within", "3"]);
    assert!(printed.contains("server rack/words-1, until 20"), "{printed}");
    let after = std::fs::read(&file).unwrap();
    assert_ne!(after, before);
    assert_eq!(
        credentials(at, "server-rack-words-1.pem").identity(),
        Some(Identity::new(PartyRole::Server, "rack/words-1"))
    );
    let (_, pem) = x509_parser::pem::parse_x509_pem(&after).unwrap();
    let certificate = pem.parse_x509().unwrap();
    let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
    let expected = [
        GeneralName::URI("spiffe://corp.example/pathcall/server/rack/words-1"),
        GeneralName::DNSName("words.example"),
        GeneralName::IPAddress(&[10, 0, 0, 7]),
    ];
    assert_eq!(names[..], expected);
    assert_eq!(std::fs::read_dir(at.join("certs")).unwrap().count(), 6, "leftover files");
}

#[cfg(unix)]
#[test]
fn authority_is_private_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    for (file, mode) in [("ca.key", 0o600), ("element-one.pem", 0o600), ("ca.pem", 0o644)] {
        let permissions = folder.path().join("certs").join(file).metadata().unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777 & !0o022, mode & !0o022, "{file}");
    }
    let before = std::fs::read(folder.path().join("certs/ca.pem")).unwrap();
    let (status, _, stderr) = run(folder.path(), &["cert", "init"]);
    assert_eq!((status, stderr.as_str()), (1, "pathcall: certs/ca.key: File exists (os error 17)\n"));
    assert_eq!(std::fs::read(folder.path().join("certs/ca.pem")).unwrap(), before);
}

#[test]
fn certificate_errors_are_one_line() {
    let folder = folder();
    let none = tempfile::tempdir().unwrap();
    let fails = |at: &Path, arguments: &[&str], expected: &str| {
        let (status, _, stderr) = run(at, arguments);
        // The port that the system chose is left out of the comparison.
        let printed = stderr.trim_end().split_once(" (").filter(|(before, _)| before.starts_with("pathcall: 0.0.0.0:"));
        let printed =
            printed.map_or(stderr.trim_end().to_owned(), |(_, after)| format!("pathcall: 0.0.0.0:0 ({after}"));
        assert_eq!((status, printed.as_str()), (1, expected), "{arguments:?}");
    };
    fails(
        none.path(),
        &["cert", "issue", "server", "words"],
        "pathcall: no authority in certs: make one with `pathcall cert init`, or set its folder with --folder",
    );
    fails(
        folder.path(),
        &["cert", "issue", "server", "a b"],
        "pathcall: invalid name \"a b\": expected letters, digits, '-', '_', '.', and '/' between parts",
    );
    fails(folder.path(), &["cert", "renew", "element.toml"], "pathcall: element.toml: not a certificate in PEM format");
    fails(
        folder.path(),
        &["controller", "--listen", "0.0.0.0:0"],
        "pathcall: 0.0.0.0:0 (controller) can be reached from other hosts, and there are no certificates: set \
         them with --tls, or accept unauthenticated callers with --insecure",
    );
    fails(
        folder.path(),
        &["element", "--control", "0.0.0.0:0", "--data", "127.0.0.1:0", "--advertise", "127.0.0.1"],
        "pathcall: 0.0.0.0:0 (control service of an element) can be reached from other hosts, and there are no \
         certificates: set them with --tls, or accept unauthenticated callers with --insecure",
    );
    fails(
        folder.path(),
        &["status", "--controller", "https://127.0.0.1:1"],
        "pathcall: https://127.0.0.1:1 requires TLS, and this program has no certificates: set them with --tls or in its \
         configuration",
    );
    let (status, _, stderr) = run(folder.path(), &["cert", "issue", "root", "x"]);
    assert_eq!(status, 2);
    assert!(
        stderr.contains("unknown role \"root\" (roles: controller, element, server, caller, operator)"),
        "{stderr}"
    );
}

#[test]
fn controller_element_and_operator_authenticate() {
    let folder = folder();
    let at = folder.path();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(crate::PATHCALL);
        let (process, ready) = Process::ready(command.args(arguments).current_dir(at));
        (process, ready)
    };
    let (_controller, ready) = start(&["controller", "--listen", "127.0.0.1:0", "--tls", "controller.toml"]);
    let url = ready.trim_end().strip_prefix("ready: controller at ").unwrap().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let free = "127.0.0.1:0";
    let element = ["element", "--controller", &url, "--data", free, "--control", free, "--tls", "element.toml"];
    let (_element, ready) = start(&element);
    assert!(ready.contains("control calls at https://127.0.0.1:"), "{ready}");
    until("the element is registered", || {
        let printed = succeed(at, &["status", "--controller", &url, "--tls", "operator.toml", "--json"]);
        printed.contains("\"alive\": true").then_some(())
    });
    // An element is not an operator.
    let (status, _, stderr) = run(at, &["status", "--controller", &url, "--tls", "element.toml"]);
    assert_eq!(status, 1);
    assert!(stderr.contains("element one may not call Controller/Status"), "{stderr}");
    // Neither is a client without certificate.
    let plain = url.replace("https", "http");
    assert_eq!(run(at, &["status", "--controller", &plain]).0, 1);
}

#[test]
fn up_with_one_certificate_becomes_ready() {
    let folder = folder();
    let free = "127.0.0.1:0";
    let mut command = Command::new(crate::PATHCALL);
    command.args(["up", "--listen", free, "--data", free, "--control", free, "--tls", "controller.toml"]);
    let (_up, ready) = Process::ready(command.current_dir(folder.path()));
    assert!(ready.starts_with("ready: controller at https://127.0.0.1:"), "{ready}");
}

#[test]
fn insecure_service_logs_warning() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new(crate::PATHCALL);
    command.args(["controller", "--listen", "0.0.0.0:0", "--insecure"]).stderr(std::fs::File::create(&log).unwrap());
    let (_controller, _) = Process::ready(&mut command);
    let printed = std::fs::read_to_string(log).unwrap();
    assert!(printed.contains("accepts unauthenticated callers, and keys cross the network unencrypted"), "{printed}");
}
