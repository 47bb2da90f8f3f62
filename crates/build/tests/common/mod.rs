//! A `.proto` and filters in a directory of their own.

use std::path::Path;

use pathcall_build::{Report, check};

/// What `check` says about these files; the first is the `.proto`. Complaints are as printed,
/// without the directory.
pub(crate) fn check_files(files: &[(&str, &str)]) -> Result<Report, Vec<String>> {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("a file");
    }
    check(directory.path().join(files[0].0))
        .map_err(|problems| problems.iter().map(|problem| without(directory.path(), &problem.to_string())).collect())
}

fn without(directory: &Path, text: &str) -> String {
    text.replace(&format!("{}/", directory.display()), "")
}
