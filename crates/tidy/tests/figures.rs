//! Checks of `docs/figures.md`: the page has every figure of the benchmark, with the numbers of `docs/bench.md`.
//! `UPDATE=1` regenerates the page.

use crate::support::{coverage, figures, tree};

#[test]
fn figures_page_is_current() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let text = figures::figures_text().unwrap_or_else(|wrong| panic!("{wrong}"));
    let page = figures::page(&text, &papers).unwrap_or_else(|wrong| panic!("{wrong}"));
    tree::is_page("docs/figures.md", &page);
}

#[test]
fn unmeasured_row_is_reported() {
    let mut text = figures::figures_text().unwrap_or_else(|wrong| panic!("{wrong}"));
    text.figures[0].rows.push("no such case | nobody | lower".to_owned());
    let wrong = figures::page(&text, &[]).expect_err("no such row");
    assert!(wrong.contains("docs/bench.md has 0 rows"), "{wrong}");
    text.figures.remove(0);
    let wrong = figures::page(&text, &[]).expect_err("a figure is missing");
    assert!(wrong.contains("says nothing of"), "{wrong}");
}
