//! Test of the functions' size: each of CLIP's three functions has at most 150 lines of code.

use std::path::Path;

use pathcall_p4::Sources;
use pathcall_p4::emit::{p4, xdp};
use pathcall_p4::source::Lines;
use pathcall_p4::split::{SplitTarget, split};

const LINES_MAX: usize = 150;

#[test]
fn each_function_has_at_most_150_lines() {
    for name in ["snat", "fib", "trd"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../functions/{name}.p4c"));
        let mut sources = Sources::default();
        let program = pathcall_p4::compile(&mut sources, file.as_path()).expect("a program");
        let element =
            split(&program, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("can be split").element;
        let mut written = Lines::default();
        sources.written().for_each(|(_, text)| written += Lines::of(text));
        let kernel = Lines::of(&xdp::emit(&element, xdp::EmitOptions::default()).expect("C").text).code;
        let p4 = Lines::of(&p4::emit(&element).expect("P4")).code;
        println!(
            "{name}: {} lines written, {} with comments and blank ones; {kernel} in C, {p4} in P4",
            written.code, written.all
        );
        assert!(written.code <= LINES_MAX, "{name}: {} lines of code, at most {LINES_MAX}", written.code);
        // The generated code is much longer than the source.
        assert!(kernel > 3 * written.code && p4 > 3 * written.code, "{name}: {kernel} and {p4} lines generated");
    }
}
