//! Tests of the demo's tables and bars.

use pathcall_console::{TextTable, bars};

#[test]
fn columns_fit_widest_cell() {
    let mut table = TextTable::new(["a", "long head", "c"]);
    table.row(["äö".into(), "x".into(), String::new()]);
    assert_eq!(table.to_string(), "a   long head  c\näö  x\n");
}

#[test]
fn bar_lengths_match_values() {
    let row = |name: &str, value| (name.to_owned(), value);
    let rows = [row("p50  clone ", 1.0), row("p50  random", 2.0), row("p99  clone ", 12.0), row("p99  random", 24.0)];
    let text = bars(&rows, "ms");
    let lengths: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
    assert_eq!(lengths, [2, 4, 24, 48]);
    assert!(text.contains("p99  clone   #") && text.ends_with(" 24.0 ms\n"), "{text}");
    assert_eq!(bars(&[row("nothing", 0.0)], "ms"), "nothing  # 0.0 ms\n");
}
