//! Runs `check` on a `.proto` and filters in a temporary directory.

use std::path::Path;

use pathcall_build::{CheckReport, check};

/// Result of `check` on these files, the first of which is the `.proto`. Diagnostics are printed without the directory.
pub(crate) fn check_files(files: &[(&str, &str)]) -> Result<CheckReport, Vec<String>> {
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
