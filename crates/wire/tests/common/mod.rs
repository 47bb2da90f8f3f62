//! Names and values of constants, as the descriptions in other languages have them.

/// Constants of a type by name, with their values.
#[macro_export]
macro_rules! named {
    ($of:ident: $($name:ident)*) => { [$((stringify!($name).to_owned(), u64::from($of::$name))),*] };
}

/// `MapData` as `MAP_DATA`.
pub fn upper(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

/// Every variant that `parse` knows.
pub fn variants<T: std::fmt::Debug>(parse: impl Fn(u8) -> Option<T>) -> Vec<(String, u64)> {
    (0..=u8::MAX).filter_map(|value| Some((upper(&format!("{:?}", parse(value)?)), u64::from(value)))).collect()
}

/// Compares a generated file with what stands there; with `UPDATE=1` writes it.
pub fn hold(path: &str, expected: &str, test: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).expect("a file of ours");
    }
    let found = std::fs::read_to_string(&path).expect("the generated file");
    assert!(found == expected, "{} differs: UPDATE=1 cargo test -p pathcall-wire --test main {test}", path.display());
}
