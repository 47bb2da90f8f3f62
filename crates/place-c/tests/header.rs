//! Comparison of the C header with the library: both must declare the same constants, types and functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern")
}

/// C declaration of a name with a Rust type.
fn declaration_of(of: &str, name: &str) -> String {
    let of = of.trim();
    if let Some(to) = of.strip_prefix("*const ") {
        return format!("const {} *{name}", c_type(to));
    }
    match of.strip_prefix("*mut ") {
        Some(to) => format!("{} *{name}", c_type(to)),
        None => format!("{} {name}", c_type(of)),
    }
}

fn c_type(of: &str) -> String {
    match of {
        "u8" | "u32" | "u64" => format!("uint{}_t", &of[1..]),
        "i32" | "i64" => format!("int{}_t", &of[1..]),
        "usize" => "size_t".into(),
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        own if own.starts_with("pathcall_place") => own.into(),
        other => panic!("no C type for `{other}`"),
    }
}

fn arguments(text: &str) -> String {
    let one = |argument: &str| {
        let (name, of) = argument.split_once(':').unwrap_or_else(|| panic!("`{argument}` has no type"));
        declaration_of(of, name.trim())
    };
    let all: Vec<_> = text.split(',').map(str::trim).filter(|argument| !argument.is_empty()).map(one).collect();
    if all.is_empty() { "void".into() } else { all.join(", ") }
}

fn returned(text: Option<regex::Match<'_>>, name: &str) -> String {
    text.map_or_else(|| format!("void {name}"), |of| declaration_of(of.as_str(), name))
}

/// C declarations of the library's sources.
fn library() -> BTreeSet<String> {
    let mut declarations = BTreeSet::new();
    for file in ["lib", "error", "builder", "context", "event", "functions"] {
        let text = regex(r"//[^\n]*").replace_all(&read(&format!("src/{file}.rs")), "").into_owned();
        for found in regex(r"pub const (PATHCALL_PLACE_\w+): \w+ = ([^;]+);").captures_iter(&text) {
            let value = if &found[2] == "u64::MAX" { "UINT64_MAX" } else { &found[2] };
            declarations.insert(format!("#define {} {value}", &found[1]));
        }
        for found in regex(r#"pub extern "C" fn (\w+)\(([^)]*)\)(?: -> ([^{]+?))? \{"#).captures_iter(&text) {
            declarations.insert(format!("{}({})", returned(found.get(3), &found[1]), arguments(&found[2])));
        }
        let callback = r#"pub type (\w+) =\s*Option<\s*unsafe extern "C" fn\(([^)]*)\)(?: -> (\w+))?,?\s*>;"#;
        for found in regex(callback).captures_iter(&text) {
            let name = format!("(*{})", &found[1]);
            declarations.insert(format!("typedef {}({})", returned(found.get(3), &name), arguments(&found[2])));
        }
        for found in
            regex(r"(#\[repr\(C\)\]\s*)?pub struct (pathcall_place\w+)\s*(\([^)]*|\{[^}]*)").captures_iter(&text)
        {
            let name = &found[2];
            if found.get(1).is_none() {
                declarations.insert(format!("typedef struct {name} {name}"));
                continue;
            }
            let field = regex(r"pub (\w+): ([^,]+),");
            let fields =
                field.captures_iter(&found[3]).map(|field| format!("{}; ", declaration_of(&field[2], &field[1])));
            declarations.insert(format!("typedef struct {name} {{ {}}} {name}", fields.collect::<String>()));
        }
    }
    declarations
}

/// Declarations of the header.
fn header() -> BTreeSet<String> {
    let text = regex(r"(?s)/\*.*?\*/").replace_all(&read("include/pathcall_place.h"), "").into_owned();
    let define = regex(r"#define (\w+) \(?([^\n)]+?)\)?\n");
    let mut declarations: BTreeSet<_> =
        define.captures_iter(&text).map(|found| format!("#define {} {}", &found[1], &found[2])).collect();
    let text = regex(r#"(?m)^#.*$|extern "C" \{|^\}$"#).replace_all(&text, "").into_owned();
    // The fields of a structure end with semicolons, too.
    let declaration = regex(r"(?s)[^;{}]+(?:\{[^}]*\}[^;{}]*)?;");
    declarations.extend(declaration.find_iter(&text).map(|found| {
        let words: Vec<_> = found.as_str().trim_end_matches(';').split_whitespace().collect();
        words.join(" ")
    }));
    declarations
}

#[test]
fn header_matches_library() {
    let (library, header) = (library(), header());
    assert!(library.len() > 50, "{library:#?}");
    let only = |some: &BTreeSet<String>, others: &BTreeSet<String>| -> Vec<String> {
        some.difference(others).cloned().collect()
    };
    assert_eq!(only(&library, &header), Vec::<String>::new(), "declarations missing from the header");
    assert_eq!(only(&header, &library), Vec::<String>::new(), "declarations missing from the library");
}
