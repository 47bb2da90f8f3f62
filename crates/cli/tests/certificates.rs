//! `pathcall cert`, and commands that show certificates: what users type, and what they are told.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use pathcall_auth::{Credentials, Identity, Role, Rules};
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
    Credentials::files(authorities, &file, &file, Rules::default().domain("corp.example")).expect("they fit")
}

/// A folder with an authority, and the certificates and configurations of a controller, an element and an operator.
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
fn certificate_that_is_issued_names_its_role_and_is_renewed_with_its_names() {
    let folder = folder();
    let at = folder.path();
    let said = succeed(
        at,
        &["cert", "issue", "server", "rack/words-1", "--dns", "words.example", "--ip", "10.0.0.7", "--hours", "2"],
    );
    assert!(said.starts_with("certs/server-rack-words-1.pem: server rack/words-1, until 20"), "{said}");
    let file = at.join("certs/server-rack-words-1.pem");
    let before = std::fs::read(&file).unwrap();
    assert_eq!(
        credentials(at, "server-rack-words-1.pem").identity(),
        Some(Identity::new(Role::Server, "rack/words-1"))
    );
    // Not due yet: it stays.
    assert_eq!(succeed(at, &["cert", "renew", "certs/server-rack-words-1.pem", "--within", "1"]), "");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let said = succeed(at, &["cert", "renew", "certs/server-rack-words-1.pem", "--within", "3"]);
    assert!(said.contains("server rack/words-1, until 20"), "{said}");
    let after = std::fs::read(&file).unwrap();
    assert_ne!(after, before);
    assert_eq!(
        credentials(at, "server-rack-words-1.pem").identity(),
        Some(Identity::new(Role::Server, "rack/words-1"))
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
    assert_eq!(std::fs::read_dir(at.join("certs")).unwrap().count(), 6, "nothing is left beside");
}

#[cfg(unix)]
#[test]
fn keys_are_for_their_owner_only_and_an_authority_is_never_replaced() {
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
fn mistakes_with_certificates_are_said_in_a_line() {
    let folder = folder();
    let none = tempfile::tempdir().unwrap();
    let fails = |at: &Path, arguments: &[&str], expected: &str| {
        let (status, _, stderr) = run(at, arguments);
        // But for the port that the system chose.
        let said = stderr.trim_end().split_once(" (").filter(|(before, _)| before.starts_with("pathcall: 0.0.0.0:"));
        let said = said.map_or(stderr.trim_end().to_owned(), |(_, after)| format!("pathcall: 0.0.0.0:0 ({after}"));
        assert_eq!((status, said.as_str()), (1, expected), "{arguments:?}");
    };
    fails(
        none.path(),
        &["cert", "issue", "server", "words"],
        "pathcall: no authority in certs: make one with `pathcall cert init`, or name its folder with --folder",
    );
    fails(
        folder.path(),
        &["cert", "issue", "server", "a b"],
        "pathcall: the name \"a b\": expected letters, digits, '-', '_', '.', and '/' between parts",
    );
    fails(folder.path(), &["cert", "renew", "element.toml"], "pathcall: element.toml: no certificate in PEM");
    fails(
        folder.path(),
        &["controller", "--listen", "0.0.0.0:0"],
        "pathcall: 0.0.0.0:0 (controller) is reached from other hosts, and there are no certificates: name them with --tls, or \
         take anybody's word with --insecure",
    );
    fails(
        folder.path(),
        &["element", "--control", "0.0.0.0:0", "--data", "127.0.0.1:0", "--advertise", "127.0.0.1"],
        "pathcall: 0.0.0.0:0 (control service of an element) is reached from other hosts, and there are no certificates: name them \
         with --tls, or take anybody's word with --insecure",
    );
    fails(
        folder.path(),
        &["status", "--controller", "https://127.0.0.1:1"],
        "pathcall: https://127.0.0.1:1 takes certificates: name those of this program, by --tls or in its configuration",
    );
    let (status, _, stderr) = run(folder.path(), &["cert", "issue", "root", "x"]);
    assert_eq!(status, 2);
    assert!(stderr.contains("no role \"root\": there are controller, element, server, caller, operator"), "{stderr}");
}

#[test]
fn controller_and_element_with_certificates_know_each_other_and_their_operator() {
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
    until("the element is known", || {
        let said = succeed(at, &["status", "--controller", &url, "--tls", "operator.toml", "--json"]);
        said.contains("\"alive\": true").then_some(())
    });
    // An element is no operator.
    let (status, _, stderr) = run(at, &["status", "--controller", &url, "--tls", "element.toml"]);
    assert_eq!(status, 1);
    assert!(stderr.contains("element one may not call Controller/Status"), "{stderr}");
    // Nor is who shows nothing.
    let plain = url.replace("https", "http");
    assert_eq!(run(at, &["status", "--controller", &plain]).0, 1);
}

#[test]
fn up_with_one_certificate_for_both_is_ready() {
    let folder = folder();
    let free = "127.0.0.1:0";
    let mut command = Command::new(crate::PATHCALL);
    command.args(["up", "--listen", free, "--data", free, "--control", free, "--tls", "controller.toml"]);
    let (_up, ready) = Process::ready(command.current_dir(folder.path()));
    assert!(ready.starts_with("ready: controller at https://127.0.0.1:"), "{ready}");
}

#[test]
fn insecure_services_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new(crate::PATHCALL);
    command.args(["controller", "--listen", "0.0.0.0:0", "--insecure"]).stderr(std::fs::File::create(&log).unwrap());
    let (_controller, _) = Process::ready(&mut command);
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("takes anybody's word, and keys cross the network in the clear"), "{said}");
}
