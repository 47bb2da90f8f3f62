//! Log of libbpf and the verifier during the load of a program, captured instead of printed.

use std::cell::RefCell;

use libbpf_rs::PrintLevel;

use super::error::VerifierError;
use pathcall_p4::emit::xdp::Emitted;

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
}

fn append_to_log(_: PrintLevel, text: String) {
    LOG.with_borrow_mut(|all| all.push_str(&text));
}

/// Runs `run`, and returns its result with the log that this thread wrote meanwhile.
pub(super) fn capture_log<T>(run: impl FnOnce() -> T) -> (T, String) {
    LOG.with_borrow_mut(String::clear);
    libbpf_rs::set_print(Some((PrintLevel::Info, append_to_log)));
    let done = run();
    (done, LOG.with_borrow_mut(std::mem::take))
}

/// Refusal of the verifier in the log, if there is one.
pub(super) fn refusal(emitted: &Emitted, text: &str) -> Option<VerifierError> {
    let (_, log) = text.split_once("-- BEGIN PROG LOAD LOG --")?;
    let (log, _) = log.split_once("-- END PROG LOAD LOG --").unwrap_or((log, ""));
    // Source lines appear as `; text @ <stdin>:123`.
    let line = log.lines().rev().filter(|line| line.starts_with(';')).find_map(|line| {
        let digits = line.rsplit_once(" @ ")?.1.rsplit_once(':')?.1;
        digits.trim().parse::<u32>().ok()
    });
    let is_word = |line: &&str| {
        let summary =
            line.starts_with("processed ") || line.starts_with("verification time") || line.starts_with("stack depth");
        !line.trim().is_empty() && !summary && !line.starts_with(';')
    };
    let text = log.lines().rev().find(is_word).unwrap_or("no reason given").trim().to_owned();
    let origin = line.and_then(|line| emitted.origin(line)).cloned();
    Some(VerifierError { origin, message: text, log: log.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use pathcall_p4::emit::xdp::{MapLayouts, Origin};

    use super::*;

    #[test]
    fn verifier_refusal_names_construct() {
        let origin = |line, what: &str| Origin { line, what: what.to_owned(), at: Default::default() };
        let origins = vec![origin(3, "state start"), origin(10, "table t"), origin(20, "deparser")];
        let emitted = Emitted { text: String::new(), layout: MapLayouts::default(), origins };
        let text = "libbpf: prog 'function': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n; at = held(data); @ <stdin>:12\n\
                    7: (71) r2 = *(u8 *)(r1 +14)\ninvalid access to packet, off=14 size=1\n\
                    processed 8 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: failed\n";
        let refused = refusal(&emitted, text).expect("a refusal");
        assert_eq!(refused.message, "invalid access to packet, off=14 size=1");
        assert_eq!(refused.origin.expect("a line").what, "table t");
        assert!(refusal(&emitted, "libbpf: failed to create map").is_none());
    }
}
