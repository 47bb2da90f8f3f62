//! The page of this tutorial, followed.

#[test]
fn the_page_works() {
    tutorials::Reader::new().program("digests", env!("CARGO_BIN_EXE_digests")).follow("place");
}
