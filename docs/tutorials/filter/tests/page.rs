//! The page of this tutorial, followed.

#[test]
fn the_page_works() {
    tutorials::Reader::new().program("visits", env!("CARGO_BIN_EXE_visits")).follow("filter");
}
