//! `docs/figures.md` has every figure of the bench, with numbers that are `docs/bench.md`'s.
//! `UPDATE=1` writes the page anew.

use crate::support::{coverage, figures, tree};

#[test]
fn the_page_has_all_figures_and_their_numbers() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let said = figures::said().unwrap_or_else(|wrong| panic!("{wrong}"));
    let page = figures::page(&said, &papers).unwrap_or_else(|wrong| panic!("{wrong}"));
    tree::is_page("docs/figures.md", &page);
}

#[test]
fn a_row_that_was_not_measured_is_found_out() {
    let mut said = figures::said().unwrap_or_else(|wrong| panic!("{wrong}"));
    said.figures[0].rows.push("no such case | nobody | lower".to_owned());
    let wrong = figures::page(&said, &[]).expect_err("no such row");
    assert!(wrong.contains("docs/bench.md has 0 rows"), "{wrong}");
    said.figures.remove(0);
    let wrong = figures::page(&said, &[]).expect_err("a figure is missing");
    assert!(wrong.contains("says nothing of"), "{wrong}");
}
