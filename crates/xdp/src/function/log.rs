//! What libbpf and the verifier say while a program is loaded: kept instead of printed.

use std::cell::RefCell;

use libbpf_rs::PrintLevel;

use super::error::Refused;
use pathcall_function::emit::xdp::Emitted;

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

fn keep(_: PrintLevel, said: String) {
    SAID.with_borrow_mut(|all| all.push_str(&said));
}

/// Runs this; with what was said meanwhile by this thread.
pub(super) fn listen<T>(run: impl FnOnce() -> T) -> (T, String) {
    SAID.with_borrow_mut(String::clear);
    libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    let done = run();
    (done, SAID.with_borrow_mut(std::mem::take))
}

/// The verifier's refusal in what was said, if it is one.
pub(super) fn refusal(emitted: &Emitted, said: &str) -> Option<Refused> {
    let (_, log) = said.split_once("-- BEGIN PROG LOAD LOG --")?;
    let (log, _) = log.split_once("-- END PROG LOAD LOG --").unwrap_or((log, ""));
    // Lines of the source stand as `; text @ <stdin>:123`.
    let line = log.lines().rev().filter(|line| line.starts_with(';')).find_map(|line| {
        let digits = line.rsplit_once(" @ ")?.1.rsplit_once(':')?.1;
        digits.trim().parse::<u32>().ok()
    });
    let is_word = |line: &&str| {
        let summary =
            line.starts_with("processed ") || line.starts_with("verification time") || line.starts_with("stack depth");
        !line.trim().is_empty() && !summary && !line.starts_with(';')
    };
    let said = log.lines().rev().find(is_word).unwrap_or("it does not say why").trim().to_owned();
    let origin = line.and_then(|line| emitted.origin(line)).cloned();
    Some(Refused { origin, said, log: log.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use pathcall_function::emit::xdp::{Layout, Origin};

    use super::*;

    #[test]
    fn a_refusal_names_the_construct() {
        let origin = |line, what: &str| Origin { line, what: what.to_owned(), at: Default::default() };
        let origins = vec![origin(3, "state start"), origin(10, "table t"), origin(20, "deparser")];
        let emitted = Emitted { text: String::new(), layout: Layout::default(), origins };
        let said = "libbpf: prog 'function': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n; at = held(data); @ <stdin>:12\n\
                    7: (71) r2 = *(u8 *)(r1 +14)\ninvalid access to packet, off=14 size=1\n\
                    processed 8 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: failed\n";
        let refused = refusal(&emitted, said).expect("a refusal");
        assert_eq!(refused.said, "invalid access to packet, off=14 size=1");
        assert_eq!(refused.origin.expect("a line").what, "table t");
        assert!(refusal(&emitted, "libbpf: failed to create map").is_none());
    }
}
