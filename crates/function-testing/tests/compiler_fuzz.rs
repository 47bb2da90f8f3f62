//! Fuzz tests of the compiler: arbitrary text never panics, and gives diagnostics or a program in bounded time and
//! depth.

use pathcall_p4::{Sources, compile, diag, parse};
use proptest::prelude::*;
use std::path::Path;

/// Words of the language.
const WORDS: &[&str] = &[
    "action",
    "apply",
    "bit",
    "bool",
    "const",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "header",
    "if",
    "in",
    "inout",
    "int",
    "out",
    "parser",
    "return",
    "select",
    "state",
    "struct",
    "switch",
    "table",
    "transition",
    "true",
    "tuple",
    "typedef",
    "type",
    "varbit",
    "void",
    "key",
    "actions",
    "entries",
    "default_action",
    "size",
    "exact",
    "lpm",
    "accept",
    "reject",
    "start",
    "packet_in",
    "packet_out",
    "packet",
    "extract",
    "emit",
    "lookahead",
    "register",
    "counter",
    "hash",
    "request",
    "response",
    "remote_handler",
    "partition",
    "float",
    "hdr",
    "md",
    "sm",
    "H",
    "M",
    "x",
    "y",
    "next",
    "last",
    "hit",
    "miss",
    "action_run",
    "isValid",
    "setValid",
    "push_front",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ":",
    ",",
    ".",
    "=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "!",
    "?",
    "@",
    "&&&",
    "&&",
    "||",
    "==",
    "!=",
    "<=",
    ">=",
    "<<",
    "++",
    "..",
    "|+|",
    "|-|",
    "_",
    "0",
    "1",
    "8w255",
    "4s7",
    "0x",
    "9w",
    "340282366920938463463374607431768211456",
    "\"s\"",
    "\"",
    "'",
    "/*",
    "*/",
    "//",
    "\n#define x x y\n",
    "\n#define y(a) a a y(a)\n",
    "\n#if ",
    "\n#endif\n",
    "\n#else\n",
    "\n#include <inet.p4>\n",
    "\n#include \"a\"\n",
    "\n",
    "\\\n",
    "é",
    "\u{2028}",
    "\0",
    "V1Switch",
    "main",
];

fn survives(text: &str) {
    let mut sources = Sources::new(Vec::new());
    if let Err(wrong) = compile(&mut sources, ("soup.p4", text)) {
        assert!(!wrong.is_empty() && wrong.len() <= diag::DIAGNOSTICS_MAX);
        for diagnostic in &wrong {
            let said = diagnostic.render(&sources);
            assert!(said.starts_with("error: "), "{said}");
            let (line, column) = sources.position(diagnostic.at);
            assert!(line >= 1 && column >= 1);
        }
    }
    let _ = parse(&mut Sources::new(Vec::new()), ("soup.p4", text));
}

fn programs() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["tests/p4/language.p4", "tests/p4/ecn.p4", "tests/p4/source_routing.p4", "../../functions/snat.p4c"];
    names.iter().map(|name| std::fs::read_to_string(folder.join(name)).expect("a program")).collect()
}

/// Splits a text into words and punctuation.
fn cut(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        let word = c.is_alphanumeric() || c == '_';
        match pieces.last_mut() {
            Some(last) if word && last.ends_with(|l: char| l.is_alphanumeric() || l == '_') => last.push(c),
            _ => pieces.push(c.to_string()),
        }
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_words_do_not_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..200)) {
        survives(&words.join(" "));
    }

    #[test]
    fn random_words_in_body_do_not_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..60)) {
        let frame = &programs()[2];
        survives(&frame.replace("drop();", &words.join(" ")));
    }

    #[test]
    fn random_characters_do_not_panic(text in "\\PC{0,200}") {
        survives(&text);
    }

    #[test]
    fn mutated_programs_do_not_panic(
        which in 0..4_usize,
        changes in prop::collection::vec((0..3_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let mut pieces = cut(&programs()[which]);
        for (change, at, to) in changes {
            let (at, to) = (at.index(pieces.len()), to.index(pieces.len()));
            match change {
                0 => drop(pieces.remove(at)),
                1 => pieces.insert(to, pieces[at].clone()),
                _ => pieces.swap(at, to),
            }
        }
        survives(&pieces.concat());
    }
}

/// The deepest and longest texts are refused, within a small stack.
#[test]
fn excessive_depth_and_length_are_refused() {
    let frame = &programs()[2];
    let body = |text: String| frame.replace("drop();", &text);
    let many = |text: &str, count: usize| text.repeat(count);
    let texts = [
        body(format!("hdr.ethernet.etherType = {}1{};", many("(", 5000), many(")", 5000))),
        body(format!("hdr.ethernet.etherType = 1{};", many(" + hdr.ethernet.etherType", 5000))),
        body(format!("hdr.ethernet.etherType = {}1;", many("~", 5000))),
        body(format!("hdr.ethernet.etherType = {}1;", many("(bit<16>)", 5000))),
        body(format!("hdr.ethernet.etherType = {}1{};", many("{", 5000), many("}", 5000))),
        body(format!("hdr{};", many(".x", 5000))),
        body(format!("hdr{} = 1;", many("[1]", 5000))),
        body(many("{", 5000)),
        body(many("if (true) ", 5000)),
        body(format!("{} {{ }}", many("if (hdr.ethernet.isValid()) { } else ", 5000))),
        body(format!("{}bit<8>{} x;", many("tuple<", 5000), many(">", 5000))),
        body(format!("switch (hdr.ethernet.etherType) {{ {} }}", many("1: { } ", 5000))),
        format!(
            "#define A0 x\n{}A63",
            (1..64).map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1)).collect::<String>()
        ),
        format!(
            "#define E\n{}A63",
            (1..64).map(|n| format!("#define A{n} A{} A{}\n", n - 1, n - 1)).collect::<String>().replace("A0", "E")
        ),
        format!("#define F(x) x x\n{}1{}", many("F(", 200), many(")", 200)),
        many("#if 1\n", 5000),
        format!("#if {}1\n#endif", many("(", 5000)),
        format!("#if {}1\n#endif", many("!", 5000)),
        many("@a(", 5000),
        format!(
            "struct s0 {{ bit<8> a; }}\n{}struct metadata {{ s60 s; }}\n",
            (1..61).map(|n| format!("struct s{n} {{ s{} a; s{} b; }}\n", n - 1, n - 1)).collect::<String>()
        ) + &frame.replace("struct metadata { }", ""),
        body((0..60).map(|n| format!("bit<8> v{n} = 1; ")).collect::<String>() + "v0 = v1;").replace(
            "apply {",
            &format!(
                "action a0() {{ hdr.ethernet.etherType = 1; }}\n{}apply {{ a40();",
                (1..41).map(|n| format!("action a{n}() {{ a{}(); a{}(); }}\n", n - 1, n - 1)).collect::<String>()
            ),
        ),
    ];
    for (n, text) in texts.iter().enumerate() {
        let text = text.clone();
        let small = std::thread::Builder::new().stack_size(2 << 20);
        let ran = small.spawn(move || survives(&text)).expect("a thread").join();
        assert!(ran.is_ok(), "text {n}");
    }
}
