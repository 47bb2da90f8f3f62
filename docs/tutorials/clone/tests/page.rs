//! The page of this tutorial, followed.

#[test]
fn the_page_works() {
    tutorials::Reader::new().program("greeter", env!("CARGO_BIN_EXE_greeter")).follow("clone");
}
