//! Tests of the reader and type checker.

use std::sync::LazyLock;

use pathcall_build::BuildDiagnostic;
use pathcall_pipe::{Pipe, STEPS_MAX};
use proptest::prelude::*;

use crate::{SHOP, example, order};

/// Text of the example.
static TEXT: LazyLock<String> = LazyLock::new(|| std::fs::read_to_string(example("order.yaml")).expect("a file"));

fn parse(text: &str) -> Result<Pipe, Box<BuildDiagnostic>> {
    Pipe::parse("order.yaml", text, &SHOP)
}

/// Error of the order's pipe with `old` replaced by `new`.
#[track_caller]
fn error_with(old: &str, new: &str) -> String {
    assert!(TEXT.contains(old), "{old}");
    let error = parse(&TEXT.replacen(old, new, 1)).expect_err(new).to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn description_shows_messages_and_fields_of_each_hop() {
    let expected = "\
/shop.Front/Order: 4 messages between hosts for each call; without the pipe 6
1. auth receives call.token, call.item
   and calls /shop.Auth/Check with {token: $call.token}
2. stock receives call.item, auth.name
   and calls /shop.Stock/Reserve with {item: $call.item, user: $auth.name, days: 3}
3. billing receives auth.name, stock.id, stock.price
   and calls /shop.Billing/Charge with {user: $auth.name, amount: $stock.price, currency: 1}
The reply is {user: $auth.name, reservation: $stock.id, paid: $billing}
";
    assert_eq!(order().to_string(), expected);
}

#[test]
fn invalid_files_give_position_and_remedy() {
    let amount = "amount: $stock.price";
    for (old, new, expected) in [
        (
            "$call.token",
            "$call.tokn",
            "7:23: error: shop.Wish has no field `tokn`; it has `token`, `item` or `comment`",
        ),
        ("{ token: ", "{ tokn: ", "7:16: error: shop.Token has no field `tokn`; it has `token`"),
        ("$call.token", "$call.item", "7:23: error: `token` has type string; `$call.item` has type shop.Item"),
        ("$call.token", "$call", "7:23: error: `token` has type string; `$call` has type shop.Wish"),
        (
            "$call.token",
            "$call.token.x",
            "7:23: error: `x` of `$call.token.x` does not exist: the value before it has type string",
        ),
        (
            "$call.token",
            "$stock.id",
            "7:23: error: the step `stock` of `$stock.id` has not replied when this request is sent; use `call`",
        ),
        (
            "user: $auth.name, days",
            "user: $nobody.name, days",
            "10:40: error: the step `nobody` of `$nobody.name` does not exist; use `call` or `auth`",
        ),
        (
            "$auth.name, days",
            "$auth.roles, days",
            "10:40: error: `user` has type string; `$auth.roles` has type list of string",
        ),
        ("days: 3", "days: three", "10:58: error: `days` has type int32; the text `three` does not fit"),
        ("days: 3", "days: 3000000000", "10:58: error: `days` has type int32; the number `3000000000` does not fit"),
        (
            "$auth.name, days",
            "7, days",
            "10:40: error: `user` has type string; the number `7` does not fit; put it in quotes",
        ),
        ("days: 3", "days:", "10:56: error: `days` has no value; write one or remove the key"),
        ("days: 3", "user: $auth.name", "duplicate key"),
        (amount, "amount: [1]", "13:42: error: `amount` has type double; a list does not fit"),
        (
            "CURRENCY_EUR",
            "EUR",
            "`currency` has type shop.Currency; its values are `CURRENCY_UNSPECIFIED` or `CURRENCY_EUR`, not `EUR`",
        ),
        ("name: stock", "name: auth", "8:11: error: two steps have the name `auth`; give one another name"),
        ("name: stock", "name: call", "`call` is the caller's request; give the step another name"),
        ("name: stock", "name: a.b", "invalid name `a.b` of a step; use 1 to 64 letters, digits, `_` and `-`"),
        (
            "/shop.Stock/Reserve",
            "/shop.Stock/Watch",
            "9:11: error: /shop.Stock/Watch is a streaming method; a pipe has unary methods only",
        ),
        ("/shop.Stock/Reserve", "/shop.Stock/Sell", "`shop.Stock` has no method `Sell`; it has `Reserve` or `Watch`"),
        ("/shop.Stock/Reserve", "/shop.Store/Reserve", "the .proto files have no service `shop.Store`; they have"),
        ("/shop.Stock/Reserve", "Reserve", "invalid method `Reserve`; write /package.Service/Method"),
        ("paid: $billing", "paid: { account: a, later: true }", "`account` and `later` belong to the oneof `how`"),
        ("paid: $billing", "paid: $auth", "14:58: error: `paid` has type shop.Paid; `$auth` has type shop.User"),
        ("reply:", "replay:", "there is no key `replay` here; keys are protos, includes, pipe, steps, reply"),
        ("days: 3", "days: \"\\n\"", "`days` has type int32; the text `\\n` does not fit"),
    ] {
        let error = error_with(old, new);
        assert!(error.contains(expected) && error.starts_with("order.yaml:"), "{new}:\n{error}\n{expected}");
    }
    let none = parse("protos: []\npipe: /shop.Front/Order\nsteps: []\nreply: {}\n").expect_err("no steps");
    assert!(none.to_string().ends_with("the pipe has no steps; add at least one under `steps`"), "{none}");
    let step = |n| format!("  - {{ name: s{n}, call: /shop.Auth/Check, request: {{}} }}\n");
    let many: String = (0..=STEPS_MAX).map(step).collect();
    let many = parse(&format!("protos: []\npipe: /shop.Front/Order\nsteps:\n{many}reply: {{}}\n"));
    assert!(many.expect_err("too many").to_string().contains("has 61 steps; at most 60 are allowed"));
}

#[test]
fn values_of_all_kinds_are_accepted() {
    for (old, new) in [
        ("days: 3", "days: -3"),
        ("$stock.price", "1"),
        ("$stock.price", "1.5"),
        ("$auth.name, days", "\"3\", days"),
        ("$auth.name, days", "$$call, days"),
        ("$call.item,", "{ name: $call.token, count: $call.item.count },"),
        ("paid: $billing", "paid: { later: true }"),
        ("paid: $billing", "paid: {}"),
    ] {
        let text = TEXT.replacen(old, new, 1);
        assert!(parse(&text).is_ok(), "{new}: {:?}", parse(&text));
    }
}

#[test]
fn missing_and_invalid_protos_give_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("order.yaml");
    let error = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let error = Pipe::read(&path).expect_err("invalid").to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let rest = TEXT.split_once("pipe:").expect("a key").1;
    assert!(
        error(&format!("protos: []\npipe:{rest}"))
            .ends_with("`protos` is empty; name the .proto files of all services")
    );
    assert!(error(&format!("protos: [no.proto]\npipe:{rest}")).ends_with("no.proto: error: no such file"));
    std::fs::write(folder.path().join("bad.proto"), "syntax = \"proto3\";\nmessage {}\n").expect("written");
    let invalid = error(&format!("protos: [bad.proto]\npipe:{rest}"));
    assert!(invalid.contains("bad.proto:2:9: error: "), "{invalid}");
    std::fs::remove_file(&path).expect("removed");
    let unread = Pipe::read(&path).expect_err("no file").to_string();
    assert!(unread.contains("order.yaml: error: cannot read the pipe: "), "{unread}");
}

/// Texts that pieces of a file are replaced by.
const PIECES: [&str; 24] = [
    "$",
    "$$",
    "$call",
    "$call.",
    "$call.item",
    "$auth.roles",
    "$billing",
    "$stock.id.x",
    "[]",
    "{}",
    "[1, 2]",
    "{ a: b }",
    "null",
    "true",
    "-1",
    "1e400",
    ".nan",
    "\"\\u0000\"",
    "&a [*a]",
    "- -",
    ": :",
    "!!binary x",
    "\t",
    "99999999999999999999999",
];

/// The order's file with some of its words replaced.
fn mutated() -> impl Strategy<Value = String> {
    let words = TEXT.split_inclusive(' ').count();
    prop::collection::vec((0..words, prop::sample::select(&PIECES[..])), 1..4).prop_map(|changes| {
        let mut words: Vec<&str> = TEXT.split_inclusive(' ').collect();
        changes.into_iter().for_each(|(at, piece)| words[at] = piece);
        words.concat()
    })
}

proptest! {
    #[test]
    fn any_file_is_valid_or_gives_one_line(text in prop_oneof![4 => mutated(), 1 => any::<String>()]) {
        if let Err(error) = parse(&text) {
            let error = error.to_string();
            prop_assert!(error.lines().count() == 1 && error.starts_with("order.yaml"), "{error:?}");
        }
    }
}
