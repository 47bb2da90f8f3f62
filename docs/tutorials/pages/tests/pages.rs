//! Pages whose commands need no program of the reader's own; and that none is left out.

use std::path::Path;

#[test]
fn every_page_is_followed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = include_str!("pages.rs");
    let mut pages = 0;
    for entry in std::fs::read_dir(&folder).expect("the tutorials") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        let Some(name) = name.strip_suffix(".md").filter(|name| *name != "README") else { continue };
        let call = format!("follow(\"{name}\")");
        let test = std::fs::read_to_string(folder.join(name).join("tests/page.rs")).unwrap_or_default();
        assert!(test.contains(&call) || own.contains(&call), "{name}.md is followed by no test");
        pages += 1;
    }
    assert!(pages > 2, "where are the tutorials?");
}
