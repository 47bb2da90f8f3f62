//! Tests of the installer: commands of the controller applied to an element.

use pathcall_function_testing::fixtures::count_function;
use pathcall_netfn::installer::{InstallOutcome, Installer};
use pathcall_netfn::place;
use pathcall_p4::exec::Execution;
use pathcall_p4::interp::Interpreter;
use pathcall_p4::ir::{ActionId, Match, TableEntry, TableId};
use pathcall_p4::split::{SplitTarget, split};

#[test]
fn inserted_entry_has_no_values_and_rejects_older_turns() {
    let split = split(&count_function(), &SplitTarget::default()).expect("can be split");
    let mut element = Interpreter::new(&split.element).expect("runs");
    let mut installer = Installer::new(&split.element, split.generated.balance.clone(), Vec::new());
    let state = split.generated.balance.arrays.state;
    // The response of turn 3 has overtaken that of turn 2, and the entry.
    element.set_register(state, 5, 3 << 2 | 1);
    let keys = vec![Match { value: 9, prefix_bits: 32 }];
    let entry = TableEntry { keys, action: ActionId(0), args: vec![70] };
    let insert = place::Command::Insert { table: TableId(0), entry, number: 5 };
    assert_eq!(installer.place(&mut element, &[insert]), InstallOutcome::default());
    assert_eq!(element.register(state, 5), 3 << 2);
}
