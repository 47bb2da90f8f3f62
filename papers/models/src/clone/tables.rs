//! Tables of the switch in the model.

use pathcall_program::{Endpoint, Size, SwitchProgram};

use super::CloneTestbed;
use super::model::{CALLER, GAID, SERVER};

/// Switch program with tables as the controller fills them.
pub(super) fn program(testbed: &CloneTestbed) -> SwitchProgram {
    // There is no map application.
    let mut program = SwitchProgram::new(Size { rows: 0, lanes: 0, slots: 0 });
    let servers: Vec<u32> = (0..testbed.workers.len() as u32).map(|sid| SERVER + sid).collect();
    let callers = (0..testbed.callers as u32).map(|index| CALLER + index);
    let tables = program.tables_mut();
    let endpoint = |endpoint| Endpoint { endpoint, incarnation: 1, gaid: GAID, slot_base: 0, slots: 0 };
    let all = servers.iter().copied().chain(callers).try_for_each(|id| tables.set_endpoint(endpoint(id)));
    let pool = tables.install_pool(pathcall_program::InstalledPool { gaid: GAID, version: 1, servers });
    debug_assert!(all.is_ok() && pool.is_ok(), "{all:?} {pool:?}");
    program
}
