//! The page of this tutorial, followed.

#[test]
fn the_page_works() {
    tutorials::Reader::new().program("docs", env!("CARGO_BIN_EXE_docs")).follow("delegate");
}
