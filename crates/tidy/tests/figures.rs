//! Checks of `docs/figures.md`: the page has every row of every figure of the benchmark, judged by one rule. `UPDATE=1`
//! regenerates the page.

use crate::support::figures::{Figure, Row, Verdict, is_missed, verdict};
use crate::support::{coverage, figures, figures_page, tree};

#[test]
fn figures_page_is_current() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let text = figures::figures_text().unwrap_or_else(|wrong| panic!("{wrong}"));
    let page = figures_page::page(&text, &papers).unwrap_or_else(|wrong| panic!("{wrong}"));
    tree::is_page("docs/figures.md", &page);
}

/// The page has as many rows of figures as `bench/`.
#[test]
fn figures_page_has_every_recorded_row() {
    let files = tree::tracked();
    let recorded = files.iter().filter_map(|file| file.strip_prefix("bench/")?.strip_suffix(".json"));
    let rows: usize = recorded.map(|name| figures::rows(name).unwrap_or_else(|wrong| panic!("{wrong}")).len()).sum();
    let page = tree::read("docs/figures.md").expect("the page");
    let figures = page.split_once("\n## Figures\n").expect("figures").1;
    let shown = figures.lines().filter(|line| line.ends_with(" |") && !line.starts_with("| case |")).count();
    assert!(rows > 900, "{rows} rows");
    assert_eq!(shown, rows);
}

#[test]
fn text_without_row_is_reported() {
    let error_of = |change: &dyn Fn(&mut Figure)| {
        let mut text = figures::figures_text().unwrap_or_else(|wrong| panic!("{wrong}"));
        change(text.figures.iter_mut().find(|figure| figure.name == "dpc-fig6.5").expect("the figure"));
        figures_page::page(&text, &[]).expect_err("a mistake in the text")
    };
    assert!(error_of(&|figure| figure.published.push("IS9 | nobody | 1".to_owned())).contains("has no row"));
    assert!(error_of(&|figure| figure.bounds.push("nobody".to_owned())).contains("has no peer"));
    assert!(error_of(&|figure| figure.context.push("IS9".to_owned())).contains("has no case"));
    assert!(error_of(&|figure| figure.not_reproduced.clear()).contains("nothing says why"));
    assert!(error_of(&|figure| figure.name.push('x')).contains("no figure dpc-fig6.5x"));
}

#[test]
fn verdict_follows_kind_and_published_ratio() {
    let published = vec!["IS2 | twin | 0.5".to_owned(), "IS3 | twin | 1.2 | 2".to_owned()];
    let text = figures::figures_text().unwrap_or_else(|wrong| panic!("{wrong}")).figures.remove(0);
    let figure = Figure { published, bounds: vec!["the link".to_owned()], context: vec!["heap".to_owned()], ..text };
    let row = |kind: &str, case: &str, peer_name: &str, better: &str, ratio| Row {
        case: case.to_owned(),
        ours: ratio,
        peer: 1.0,
        peer_name: peer_name.to_owned(),
        unit: String::new(),
        better: better.to_owned(),
        ratio,
        expected: Some(1.0),
        kind: kind.to_owned(),
    };
    for (kind, case, peer, better, ratio, expected) in [
        ("measured", "IS2", "twin", "lower", 0.9, Verdict::Won),
        ("measured", "IS2", "twin", "lower", 1.04, Verdict::OnPar),
        ("simulated", "IS2", "twin", "higher", 0.9, Verdict::Lost),
        ("counted", "IS2", "the link", "higher", 0.9, Verdict::Bound),
        ("measured", "heap, IS2", "twin", "higher", 0.9, Verdict::Context),
        ("modelled", "IS2", "twin", "lower", 0.44, Verdict::AsThePaper),
        ("modelled", "IS2", "twin", "lower", 0.4, Verdict::NotReproduced),
        ("modelled", "IS3", "twin", "higher", 2.2, Verdict::AsThePaper),
        ("modelled", "IS3", "twin", "higher", 2.4, Verdict::NotReproduced),
        ("modelled", "IS4", "twin", "higher", 9.0, Verdict::Model),
    ] {
        let row = row(kind, case, peer, better, ratio);
        assert_eq!(verdict(&figure, &row), Ok(expected), "{row:?}");
    }
    assert!(is_missed(&row("measured", "IS2", "twin", "lower", 1.1)));
    assert!(!is_missed(&row("measured", "IS2", "twin", "higher", 1.1)));
}
