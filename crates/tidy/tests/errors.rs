//! `docs/errors.md` quotes what the sources say, and says something of every error that users meet.

use crate::support::messages::{bare, literals, quoted, said};
use crate::support::tree::read;

/// Files whose errors no user meets, with the reason.
const UNMET: [(&str, &str); 2] = [
    ("crates/shm/src/memory.rs", "a peer whose memory is refused is sent frames by UDP, and counted"),
    ("crates/shm/src/ring.rs", "a ring that its peer has damaged is given up, frames go by UDP"),
];

fn page() -> String {
    read("docs/errors.md").expect("the page of errors")
}

#[test]
fn what_is_quoted_is_said() {
    let literals = literals();
    let quoted = quoted(&page());
    assert!(quoted.len() > 300, "{} messages", quoted.len());
    let wrong: Vec<&str> = quoted
        .iter()
        .map(|row| row.text.as_str())
        .filter(|text| {
            bare(text).chars().filter(|c| c.is_alphabetic()).count() < 4
                || !literals.iter().any(|said| said.contains(bare(text)))
        })
        .collect();
    assert!(wrong.is_empty(), "no source says:\n{}", wrong.join("\n"));
    let bare: Vec<&str> = quoted.iter().filter(|row| row.beside.is_empty()).map(|row| row.text.as_str()).collect();
    assert!(bare.is_empty(), "nothing stands beside:\n{}", bare.join("\n"));
}

#[test]
fn every_error_is_on_the_page() {
    let quoted = quoted(&page());
    let mut missing = Vec::new();
    let all = said();
    assert!(all.len() > 300, "{} errors", all.len());
    for said in all {
        let text = bare(&said.text);
        let words = text.chars().filter(|c| c.is_alphabetic()).count();
        if words < 4 || UNMET.iter().any(|(file, _)| said.file.starts_with(file)) {
            continue;
        }
        let rows: Vec<_> = quoted.iter().filter(|row| bare(&row.text) == text).collect();
        match &said.code {
            _ if rows.is_empty() => missing.push(format!("{}: {:?}, {:?}", said.file, said.text, said.code)),
            Some(code) if !rows.iter().any(|row| row.beside.contains(code.as_str())) => {
                missing.push(format!("{}: {:?} is {code}, the page says {:?}", said.file, said.text, rows[0].beside));
            }
            _ => {}
        }
    }
    assert!(missing.is_empty(), "not in docs/errors.md:\n{}", missing.join("\n"));
}

#[test]
fn every_reason_why_frames_are_dropped_is_on_the_page() {
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
