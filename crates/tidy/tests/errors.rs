//! Checks of `docs/errors.md`: the page quotes the sources, and lists every error that users can get.

use crate::support::messages::{bare, error_messages, literals, quoted};
use crate::support::tree::read;

/// Files with errors that no user gets, with the reason.
const INTERNAL_ERRORS: [(&str, &str); 2] = [
    ("crates/shm/src/memory.rs", "frames of a peer with invalid memory use UDP, and the peer is counted"),
    ("crates/shm/src/ring.rs", "a ring that its peer has damaged is closed, frames use UDP"),
];

fn page() -> String {
    read("docs/errors.md").expect("the page of errors")
}

#[test]
fn quoted_messages_exist_in_sources() {
    let literals = literals();
    let quoted = quoted(&page());
    assert!(quoted.len() > 300, "{} messages", quoted.len());
    let wrong: Vec<&str> = quoted
        .iter()
        .map(|row| row.text.as_str())
        .filter(|text| {
            bare(text).chars().filter(|c| c.is_alphabetic()).count() < 4
                || !literals.iter().any(|literal| literal.contains(bare(text)))
        })
        .collect();
    assert!(wrong.is_empty(), "no source has:\n{}", wrong.join("\n"));
    let bare: Vec<&str> = quoted.iter().filter(|row| row.beside.is_empty()).map(|row| row.text.as_str()).collect();
    assert!(bare.is_empty(), "rows without explanation:\n{}", bare.join("\n"));
}

#[test]
fn every_error_is_on_page() {
    let quoted = quoted(&page());
    let mut missing = Vec::new();
    let all = error_messages();
    assert!(all.len() > 300, "{} errors", all.len());
    for message in all {
        let text = bare(&message.text);
        let words = text.chars().filter(|c| c.is_alphabetic()).count();
        if words < 4 || INTERNAL_ERRORS.iter().any(|(file, _)| message.file.starts_with(file)) {
            continue;
        }
        let rows: Vec<_> = quoted.iter().filter(|row| bare(&row.text) == text).collect();
        match &message.code {
            _ if rows.is_empty() => missing.push(format!("{}: {:?}, {:?}", message.file, message.text, message.code)),
            Some(code) if !rows.iter().any(|row| row.beside.contains(code.as_str())) => {
                missing.push(format!(
                    "{}: {:?} is {code}, the page says {:?}",
                    message.file, message.text, rows[0].beside
                ));
            }
            _ => {}
        }
    }
    assert!(missing.is_empty(), "not in docs/errors.md:\n{}", missing.join("\n"));
}

#[test]
fn every_drop_reason_is_on_page() {
    let counters = read("crates/program/src/counters.rs").expect("the counters");
    let reasons: Vec<String> = counters
        .lines()
        .filter_map(|line| line.trim().strip_prefix("drop_")?.strip_suffix(','))
        .map(|reason| reason.replace('_', " "))
        .collect();
    assert!(reasons.len() >= 6, "{reasons:?}");
    let page = page();
    for reason in reasons {
        assert!(page.contains(&format!("\n| {reason} | ")), "docs/errors.md does not explain: dropped, {reason}");
    }
}
