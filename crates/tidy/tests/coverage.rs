//! `docs/coverage.md` says what `docs/coverage/*.toml` do, and all that these name is there.
//! `UPDATE=1` writes the page anew.

use std::collections::BTreeSet;

use crate::support::{coverage, figures, tree};

#[test]
fn what_is_said_of_the_papers_is_there() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let tracked: BTreeSet<String> = tree::tracked().into_iter().collect();
    let known: BTreeSet<String> = figures::of_the_bench().into_keys().collect();
    let wrong: Vec<String> = papers.iter().flat_map(|paper| coverage::mistakes(paper, &tracked, &known)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_page_is_made_of_it() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    tree::is_page("docs/coverage.md", &coverage::page(&papers));
}

#[test]
fn every_figure_of_a_paper_is_named_by_one() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let named: BTreeSet<&String> = papers.iter().flat_map(|paper| &paper.parts).flat_map(|part| &part.bench).collect();
    let of_papers = ["netrpc-", "netclone-fig", "function-fig", "function-table", "leo-", "dpc-fig", "dpc-table"];
    for name in figures::of_the_bench().into_keys() {
        let of_a_paper = of_papers.iter().any(|start| name.starts_with(start));
        assert!(!of_a_paper || named.contains(&name), "docs/coverage names {name} nowhere");
    }
}

#[test]
fn what_is_not_there_is_found_out() {
    let said = r#"
        system = "S"
        title = "T"
        ability = "a"
        page = "p.md"
        [[part]]
        at = "§1"
        what = "w"
        state = "covered"
        code = ["crates/tidy/tests/support/coverage.rs#Paper", "crates/tidy/tests/support/coverage.rs#Nothing_of_this_name", "crates/none"]
        tests = ["crates/tidy/tests/coverage.rs::what_is_not_there_is_found_out", "crates/tidy/tests/coverage.rs::tracked"]
        bench = ["no-such-figure"]
        [[part]]
        at = "§1"
        what = "again, and without a reason"
        state = "not-yet"
    "#;
    let paper: coverage::Paper = toml::from_str(said).expect("a paper");
    let tracked = tree::tracked()
        .into_iter()
        .chain(["crates/tidy/tests/support/coverage.rs", "crates/tidy/tests/coverage.rs"].map(String::from));
    let wrong = coverage::mistakes(&paper, &tracked.collect(), &BTreeSet::new());
    let said = |what: &str| assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:#?}");
    said("does not define Nothing_of_this_name");
    said("no file crates/none");
    said("has no test tracked");
    said("no figure no-such-figure");
    said("is there twice");
    said("too little");
    assert_eq!(wrong.len(), 6, "{wrong:#?}");
}
