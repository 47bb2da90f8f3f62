//! Tests of the syntax of filters, also with arbitrary text.

use pathcall_build::filter::{ClearOption, CountedKey, NetFilter, parse};
use pathcall_proto::manifest::{ForwardTarget, Modify, OpType};
use proptest::prelude::*;

fn one(text: &str) -> NetFilter {
    let mut filters = parse(text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    assert_eq!(filters.len(), 1, "{text}");
    filters.remove(0)
}

#[test]
fn only_app_name_is_required() {
    let filter = one(r#" {"AppName": "a"}"#);
    assert_eq!(filter.app_name.value, "a");
    assert_eq!(filter.precision.value, 0);
    assert_eq!((&filter.get.value, &filter.add_to.value), (&None, &None));
    assert_eq!(filter.clear.value, ClearOption::Nop);
    assert_eq!(filter.modify.value, Modify::NOP);
    assert_eq!(filter.cnt_fwd.to.value, ForwardTarget::Src);
    assert_eq!(filter.cnt_fwd.threshold.value, 0);
    assert_eq!(filter.cnt_fwd.key.value, CountedKey::Null);
    assert_eq!((filter.span.start, filter.span.end), (1, 17));
}

#[test]
fn values_have_positions() {
    let text = r#"/* ä */ {"AppName": "a", "addTo": "M.f"} // end"#;
    let filter = one(text);
    assert_eq!(&text[filter.add_to.span.start..filter.add_to.span.end], "\"M.f\"");
    assert_eq!(filter.add_to.value.as_deref(), Some("M.f"));
    // In a second object, positions also count from the start of the text.
    let text = "{\"AppName\": \"a\"}\n{\"AppName\": \"b\", \"get\": \"M.g\"}";
    let get = &parse(text).expect("two filters")[1].get;
    assert_eq!(&text[get.span.start..get.span.end], "\"M.g\"");
}

#[test]
fn file_can_have_several_objects_or_array() {
    let names = |text: &str| parse(text).unwrap().into_iter().map(|filter| filter.app_name.value).collect::<Vec<_>>();
    assert_eq!(names(r#"{"AppName": "a"} /* and */ {"AppName": "b",}{"AppName": "c"}"#), ["a", "b", "c"]);
    assert_eq!(names(r#"[{"AppName": "a"}, {"AppName": "b"},]"#), ["a", "b"]);
}

#[test]
fn operators_are_case_insensitive() {
    let modify = |value: &str| one(&format!(r#"{{"AppName": "a", "modify": {value}}}"#)).modify.value;
    assert_eq!(modify("\"nop\""), Modify::NOP);
    assert_eq!(modify("\"bnot\""), Modify { op: OpType::Bnot, para: 0 });
    assert_eq!(modify(r#"{"op": "BNOT"}"#), Modify { op: OpType::Bnot, para: 0 });
    assert_eq!(modify(r#"{"op": "Max", "para": -3}"#), Modify { op: OpType::Max, para: -3 });
    assert_eq!(modify(r#"{"para": 31, "op": "shiftr"}"#), Modify { op: OpType::ShiftR, para: 31 });
}

/// Checks that a diagnostic of any text can be printed and points into the text.
fn check_diagnostics_are_printable(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(filters) => {
            let opens = |filter: &NetFilter| text[filter.span.start..].starts_with('{');
            prop_assert!(filters.iter().all(opens));
        }
        Err(problems) => {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(problem.at.line <= text.matches('\n').count() + 1, "{}", problem);
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_text_is_parsed_or_reported(text in any::<String>()) {
        check_diagnostics_are_printable(&text)?;
    }

    #[test]
    fn arbitrary_tokens_are_parsed_or_reported(tokens in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "//", "/*", "*/", "\n", " ", "\"", "\\", "\"AppName\"", "\"a\"", "\"Precision\"",
        "\"CntFwd\"", "\"key\"", "\"threshold\"", "\"modify\"", "\"op\"", "\"para\"", "\"get\"", "-", "1", "1e9",
        "9999999999999999999999", "null", "true", "nop", "'", "\u{2028}", "ä", "\\u", "\\ud800", "\0",
    ]), 0..60)) {
        check_diagnostics_are_printable(&tokens.concat())?;
    }

    /// Valid filter with a few bytes changed.
    #[test]
    fn mutated_filter_is_parsed_or_reported(edits in prop::collection::vec((0..400usize, any::<char>()), 1..4)) {
        let mut text: Vec<char> = include_str!("fixtures/lock.nf").chars().collect();
        for (at, with) in edits {
            let at = at % text.len();
            text[at] = with;
        }
        check_diagnostics_are_printable(&text.into_iter().collect::<String>())?;
    }
}
