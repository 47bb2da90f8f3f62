//! What a filter may look like, and that no text harms.

use pathcall_build::filter::{ClearPolicy, Key, NetFilter, parse};
use pathcall_proto::manifest::{Modify, Op, Target};
use proptest::prelude::*;

fn one(text: &str) -> NetFilter {
    let mut filters = parse(text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"));
    assert_eq!(filters.len(), 1, "{text}");
    filters.remove(0)
}

#[test]
fn only_the_name_is_required() {
    let filter = one(r#" {"AppName": "a"}"#);
    assert_eq!(filter.app_name.value, "a");
    assert_eq!(filter.precision.value, 0);
    assert_eq!((&filter.get.value, &filter.add_to.value), (&None, &None));
    assert_eq!(filter.clear.value, ClearPolicy::Nop);
    assert_eq!(filter.modify.value, Modify::NOP);
    assert_eq!(filter.cnt_fwd.to.value, Target::Src);
    assert_eq!(filter.cnt_fwd.threshold.value, 0);
    assert_eq!(filter.cnt_fwd.key.value, Key::Null);
    assert_eq!((filter.span.start, filter.span.end), (1, 17));
}

#[test]
fn values_know_their_place() {
    let text = r#"/* ä */ {"AppName": "a", "addTo": "M.f"} // end"#;
    let filter = one(text);
    assert_eq!(&text[filter.add_to.span.start..filter.add_to.span.end], "\"M.f\"");
    assert_eq!(filter.add_to.value.as_deref(), Some("M.f"));
    // In a second object, places count from the start of the text as well.
    let text = "{\"AppName\": \"a\"}\n{\"AppName\": \"b\", \"get\": \"M.g\"}";
    let get = &parse(text).expect("two filters")[1].get;
    assert_eq!(&text[get.span.start..get.span.end], "\"M.g\"");
}

#[test]
fn several_objects_or_an_array() {
    let names = |text: &str| parse(text).unwrap().into_iter().map(|filter| filter.app_name.value).collect::<Vec<_>>();
    assert_eq!(names(r#"{"AppName": "a"} /* and */ {"AppName": "b",}{"AppName": "c"}"#), ["a", "b", "c"]);
    assert_eq!(names(r#"[{"AppName": "a"}, {"AppName": "b"},]"#), ["a", "b"]);
}

#[test]
fn operators_in_any_case() {
    let modify = |value: &str| one(&format!(r#"{{"AppName": "a", "modify": {value}}}"#)).modify.value;
    assert_eq!(modify("\"nop\""), Modify::NOP);
    assert_eq!(modify("\"bnot\""), Modify { op: Op::Bnot, para: 0 });
    assert_eq!(modify(r#"{"op": "BNOT"}"#), Modify { op: Op::Bnot, para: 0 });
    assert_eq!(modify(r#"{"op": "Max", "para": -3}"#), Modify { op: Op::Max, para: -3 });
    assert_eq!(modify(r#"{"para": 31, "op": "shiftr"}"#), Modify { op: Op::ShiftR, para: 31 });
}

/// The numbers in a manifest are those of a frame.
#[test]
fn operators_are_numbered_as_on_the_wire() {
    use pathcall_wire::map::OpType;
    let pairs = [
        (Op::Nop, OpType::Nop),
        (Op::Max, OpType::Max),
        (Op::Min, OpType::Min),
        (Op::Add, OpType::Add),
        (Op::Assign, OpType::Assign),
        (Op::ShiftL, OpType::ShiftL),
        (Op::ShiftR, OpType::ShiftR),
        (Op::Band, OpType::Band),
        (Op::Bor, OpType::Bor),
        (Op::Bnot, OpType::Bnot),
        (Op::Bxor, OpType::Bxor),
    ];
    for (ours, wire) in pairs {
        assert_eq!(ours as u8, wire as u8, "{ours:?}");
    }
}

/// A complaint about any text can be printed and points into it.
fn survives(text: &str) -> Result<(), TestCaseError> {
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
    fn any_text(text in any::<String>()) {
        survives(&text)?;
    }

    #[test]
    fn any_order_of_tokens(tokens in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ":", ",", "//", "/*", "*/", "\n", " ", "\"", "\\", "\"AppName\"", "\"a\"", "\"Precision\"",
        "\"CntFwd\"", "\"key\"", "\"threshold\"", "\"modify\"", "\"op\"", "\"para\"", "\"get\"", "-", "1", "1e9",
        "9999999999999999999999", "null", "true", "nop", "'", "\u{2028}", "ä", "\\u", "\\ud800", "\0",
    ]), 0..60)) {
        survives(&tokens.concat())?;
    }

    /// A good filter with a few bytes changed.
    #[test]
    fn nearly_right(edits in prop::collection::vec((0..400usize, any::<char>()), 1..4)) {
        let mut text: Vec<char> = include_str!("fixtures/lock.nf").chars().collect();
        for (at, with) in edits {
            let at = at % text.len();
            text[at] = with;
        }
        survives(&text.into_iter().collect::<String>())?;
    }
}
