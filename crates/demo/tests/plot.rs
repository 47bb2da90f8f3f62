//! Tests of the charts with arbitrary values.

use pathcall_plot::{Axis, BarGroup, BarRole, Bars, Chart, Comparison, ComparisonBar, ComparisonPanel, PlotLine};

#[test]
fn bars_are_drawn_for_any_values() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("bars.svg");
    let bar = |name: &str, value| (name.to_owned(), value);
    let groups = [
        BarGroup { name: "sums".to_owned(), bars: vec![bar("one way", 1234.5), bar("another", 2.25)] },
        BarGroup { name: "nothing".to_owned(), bars: vec![bar("empty", 0.0), bar("odd", f64::NAN)] },
    ];
    Bars { title: "ways", about: "to do the same", unit: "calls/s", groups: &groups }.draw(&path).expect("drawn");
    let svg = std::fs::read_to_string(&path).expect("a picture");
    for text in ["ways", "to do the same", "one way", "1234 calls/s", "2.2 calls/s", "0.0 calls/s"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn lines_are_drawn_for_any_values() {
    let directory = tempfile::tempdir().expect("a folder");
    let axes = [Axis::from_zero("time, s"), Axis::by_factors("share")];
    let all: [&[(f64, f64)]; 4] =
        [&[(0.1, 25.0), (0.9, 2500.0)], &[], &[(0.5, 0.0), (0.6, f64::INFINITY)], &[(0.0, 0.0)]];
    for (at, (x, y)) in axes.iter().flat_map(|x| axes.iter().map(move |y| (*x, *y))).enumerate() {
        let line = |points: &&[(f64, f64)]| PlotLine { name: format!("of {}", points.len()), points: points.to_vec() };
        let lines: Vec<PlotLine> = all.iter().map(line).collect();
        let path = directory.path().join(format!("{at}.svg"));
        Chart { title: "what was seen", about: "in a line", x, y, lines: &lines }.draw(&path).expect("drawn");
        let svg = std::fs::read_to_string(&path).expect("a picture");
        assert!(!svg.contains(".0\n"), "{svg}");
        for text in ["what was seen", "in a line", x.name, y.name, "of 2", "of 0"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
    let nowhere = directory.path().join("no/such.svg");
    let error = Chart { title: "", about: "", x: axes[0], y: axes[0], lines: &[] }.draw(&nowhere);
    assert_eq!(error.expect_err("no folder").path, nowhere);
}

#[test]
fn comparison_shows_values_notes_and_ticks() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("comparison.svg");
    let bar = |name: &str, value, note: &str| ComparisonBar {
        name: name.to_owned(),
        value,
        role: if note.is_empty() { BarRole::Baseline } else { BarRole::Gain },
        note: note.to_owned(),
    };
    let panel = |unit, bars| ComparisonPanel { quantity: "time of a sum".to_owned(), unit, bars };
    let panels = [
        panel("s", vec![bar("element", 0.494, "5.6 times faster"), bar("plain gRPC", 2.787, "")]),
        panel("requests/s", vec![bar("both", 20_027.4, ""), bar("odd", f64::NAN, ""), bar("none", 0.0, "")]),
        panel("%", Vec::new()),
    ];
    let notes = ["a limit".to_owned()];
    Comparison { title: "sums", about: "four workers", panels: &panels, notes: &notes }.draw(&path).expect("drawn");
    let svg = std::fs::read_to_string(&path).expect("a picture");
    for text in ["sums", "four workers", "0.49 s", "5.6 times faster", "2.79 s", "20,027 requests/s", "a limit"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    // Ticks of both axes, the last one beyond the longest bar.
    for tick in ["0.0", "0.5", "3.0", "5000", "25000"] {
        assert!(svg.contains(&format!("\n{tick}\n")), "{tick}: {svg}");
    }
}
