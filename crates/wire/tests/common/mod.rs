//! Names and values of constants for the generated headers.

/// Named constants of a type, with their values.
#[macro_export]
macro_rules! named {
    ($of:ident: $($name:ident)*) => { [$((stringify!($name).to_owned(), u64::from($of::$name))),*] };
}

/// Converts `MapData` to `MAP_DATA`.
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

/// Name and number of each variant that `parse` accepts.
pub fn variants<T: std::fmt::Debug>(parse: impl Fn(u8) -> Option<T>) -> Vec<(String, u64)> {
    (0..=u8::MAX).filter_map(|value| Some((upper(&format!("{:?}", parse(value)?)), u64::from(value)))).collect()
}

/// Compares the expected content with a generated file, or writes the file if `UPDATE=1`.
pub fn compare_or_update(path: &str, expected: &str, test: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).expect("generated file is writable");
    }
    let found = std::fs::read_to_string(&path).expect("generated file is readable");
    assert!(found == expected, "{} differs: UPDATE=1 cargo test -p pathcall-wire --test main {test}", path.display());
}
