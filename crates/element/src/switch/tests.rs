//! Tests of changes that the kernel rejects. Needs root; `PATHCALL_ROOT_TESTS=1` makes missing rights a failure.

use std::net::Ipv4Addr;

use super::*;

const SIZE: Size = Size { rows: 64, lanes: 64 * 300, slots: 4 };
const APPLICATION: InstalledApplication =
    InstalledApplication { gaid: 7, epoch: 1, owner: 3, row_base: 0, rows: 64, lane_base: 0, width: 8 };
const ENDPOINT: Endpoint = Endpoint { endpoint: 2, incarnation: 1, gaid: 7, slot_base: 0, slots: 1 };

/// Switch with the XDP program.
fn switch() -> Option<Switch> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let _entered = runtime.enter();
    let (kernel, _) = crate::kernel::start_for_test((Ipv4Addr::LOCALHOST, 7702).into(), SIZE)?;
    Some(Switch::new(SIZE, usize::MAX, ([127, 0, 0, 1], 0).into(), Some(kernel)))
}

impl Switch {
    fn in_kernel(&self, gaid: u32) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.has(gaid))
    }
}

#[test]
fn change_that_kernel_rejects_is_removed() {
    let Some(mut switch) = switch() else { return };
    switch.install(APPLICATION, None).expect("free memory");
    switch.set_endpoints(&[(ENDPOINT, (Ipv4Addr::LOCALHOST, 1).into())]).expect("free memory");
    assert!(switch.in_kernel(7));

    // The application is wider than the kernel's program supports. The earlier one must not stay in the kernel: its
    // memory may belong to another application.
    let wide = switch.install(InstalledApplication { epoch: 2, width: 300, ..APPLICATION }, None).unwrap_err();
    assert!(matches!(wide, CommandRefused::Kernel(_)), "{wide}");
    assert!(!switch.in_kernel(7) && switch.program.tables().applications().next().is_none());
    assert!(switch.program.tables().endpoint(2).is_none() && switch.routes.len() == 0);
    assert_eq!(switch.remove(7), Err(CommandRefused::Table(TableChangeError::UnknownApplication(7))));
    switch.install(InstalledApplication { gaid: 8, ..APPLICATION }, None).expect("its memory is free");

    // The kernel's program does not support this address: the endpoint must not be admitted.
    let entry = Endpoint { gaid: 8, ..ENDPOINT };
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    switch.set_endpoints(&[(entry, addr)]).expect("free memory");
    let family = switch.set_endpoints(&[(entry, "[::1]:1".parse().expect("an address"))]).unwrap_err();
    assert_eq!(
        family,
        CommandRefused::Kernel(KernelRejected::Family { endpoint: 2, addr: "[::1]:1".parse().expect("an address") })
    );
    assert!(switch.program.tables().endpoint(2).is_none() && switch.routes.get(2).is_none());
    switch.set_endpoints(&[(entry, addr)]).expect("free memory");
}
