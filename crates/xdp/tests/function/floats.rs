//! Tests of special floating-point values, through the element in the kernel and back.

use std::path::PathBuf;

use pathcall_netfn::handler::{CHandler, Config as Settings};
use pathcall_netfn::run::{Config as Running, System};
use pathcall_p4::exec::Output;
use pathcall_p4::split::{SplitTarget, split};
use pathcall_p4::{DiagnosticReport, Sources, compile};
use pathcall_xdp::function::{Config, XdpFunction};

#[path = "../../../function-testing/tests/floats/bits.rs"]
mod bits;

use bits::{BITS, check, packet};

#[test]
fn floats_keep_their_bits_in_kernel() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../function-testing/tests/floats.p4c");
    let mut sources = Sources::default();
    let program =
        compile(&mut sources, path.as_path()).unwrap_or_else(|wrong| panic!("{}", DiagnosticReport(&wrong, &sources)));
    let split = split(&program, &SplitTarget { function: 1, ..SplitTarget::default() }).expect("can be split");
    let config = Config { testing: true, local_port: None, storage: None };
    let Some(element) = super::permitted(XdpFunction::load(&split.element, &config)) else { return };
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("handlers");
    let handler = CHandler::start(&program, &|_| None, &Settings::default(), &cache, 0).expect("starts");
    let mut system = System::new(split, element, vec![handler], 1, &Running::default(), |_| 10);
    system.advance(100_000, &mut |_| {});
    let mut before = 0;
    for (at, value) in BITS.into_iter().enumerate() {
        let mut left = Vec::new();
        let mut take = |output: Output<'_>| {
            if let Output::Packet { bytes, .. } = output {
                left.push(bytes.to_vec());
            }
        };
        system.process(101_000 + 100 * at as u64, 0, &packet(value), &mut take);
        system.finish(&mut take);
        check(value, before, &left);
        before = value;
    }
}
