//! Tables of the switch in the model.

use pathcall_program::{Endpoint, Size, SwitchProgram};
use pathcall_wire::CloneFrame;
use pathcall_wire::clone::pair;

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

/// Addresses a request to the first server of its pair, as a caller without an element does.
pub(super) fn first_server(bytes: &mut [u8], servers: usize) -> Option<u32> {
    let mut frame = CloneFrame::new_checked(bytes).ok()?;
    let (first, _) = pair(frame.head().grp(), servers)?;
    let to = SERVER + u32::from(first);
    frame.base_mut().set_dst(to);
    Some(to)
}
