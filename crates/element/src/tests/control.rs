//! Tests of the control service, and of start and shutdown.

use super::common::{BANK, EPOCH, GAID, ROWS, SERVER, WIDTH, application, config, fixture, fixture_with, keyed};
use crate::run;
use pathcall_proto::v1::{
    ElementApplication, EndpointEntry, InstallApplicationRequest, LastSeenRequest, ReadRegistersRequest,
    RemoveEndpointsRequest, RemoveRequest, ResetRegistersRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use pathcall_test_support::loopback;
use pathcall_wire::{FrameKind, MapFlags};
use tonic::Code;

#[tokio::test]
async fn change_with_wrong_boot_id_is_refused() {
    let mut fixture = fixture().await;
    let boot_id = fixture.element.boot_id() ^ 1;
    let control = &mut fixture.control;
    let refused = [
        control
            .install_application(InstallApplicationRequest { boot_id, application: Some(application()) })
            .await
            .unwrap_err(),
        control.remove(RemoveRequest { boot_id, gaid: GAID }).await.unwrap_err(),
        control.set_endpoints(SetEndpointsRequest { boot_id, endpoints: vec![] }).await.unwrap_err(),
        control.remove_endpoints(RemoveEndpointsRequest { boot_id, endpoints: vec![] }).await.unwrap_err(),
        control
            .set_multicast_group(SetMulticastGroupRequest { boot_id, gaid: GAID, endpoints: vec![] })
            .await
            .unwrap_err(),
        control.reset_registers(ResetRegistersRequest { boot_id, gaid: GAID }).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains("another start"), "{status}");
    }
    assert_eq!(fixture.row(0).await, [0; WIDTH], "the application is still there");
}

#[tokio::test]
async fn registers_are_read_and_reset() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let frame = keyed(caller.base(FrameKind::MapData, &server, 1), MapFlags::ADD, &[(0, 7), (15, -8)]);
    caller.send(&frame).await;
    assert_eq!(caller.receive().await.kind(), FrameKind::MapAck);

    let all = ReadRegistersRequest { gaid: GAID, row: 0, rows: ROWS };
    let values = fixture.control.read_registers(all).await.unwrap().into_inner().values;
    assert_eq!(values.len(), ROWS as usize * WIDTH);
    assert_eq!((values[BANK], values[15 * WIDTH + BANK + 1]), (7, -8));
    assert_eq!(values.iter().filter(|value| **value != 0).count(), 2);

    let boot_id = fixture.element.boot_id();
    fixture.control.reset_registers(ResetRegistersRequest { boot_id, gaid: GAID }).await.unwrap();
    let values = fixture.control.read_registers(all).await.unwrap().into_inner().values;
    assert!(values.iter().all(|value| *value == 0));
}

#[tokio::test]
async fn invalid_control_requests_have_their_status() {
    let mut fixture = fixture().await;
    let boot_id = fixture.element.boot_id();
    let control = &mut fixture.control;
    let unknown = control.read_registers(ReadRegistersRequest { gaid: 99, row: 0, rows: 1 }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let unknown = control.reset_registers(ResetRegistersRequest { boot_id, gaid: 99 }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    for (row, rows) in [(0, ROWS + 1), (ROWS, 1), (u32::MAX, u32::MAX)] {
        let outside = control.read_registers(ReadRegistersRequest { gaid: GAID, row, rows }).await.unwrap_err();
        assert_eq!(outside.code(), Code::OutOfRange, "{row} {rows}");
    }
    let missing =
        control.install_application(InstallApplicationRequest { boot_id, application: None }).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
    let too_large = ElementApplication { gaid: 8, row_base: 60, ..application() };
    let too_large = control
        .install_application(InstallApplicationRequest { boot_id, application: Some(too_large) })
        .await
        .unwrap_err();
    assert_eq!(too_large.code(), Code::OutOfRange, "{too_large}");
    let taken = ElementApplication { gaid: 8, ..application() };
    let taken =
        control.install_application(InstallApplicationRequest { boot_id, application: Some(taken) }).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists, "{taken}");
}

#[tokio::test]
async fn endpoint_with_invalid_address_is_refused() {
    let mut fixture = fixture().await;
    let boot_id = fixture.element.boot_id();
    for bad in ["", "somewhere", "127.0.0.1", "127.0.0.1:0", "0.0.0.0:5"] {
        let entry = EndpointEntry { endpoint: 11, gaid: GAID, data_address: bad.into(), ..EndpointEntry::default() };
        let request = SetEndpointsRequest { boot_id, endpoints: vec![entry] };
        let status = fixture.control.set_endpoints(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(&format!("{bad:?}")), "{status}");
    }
}

#[tokio::test]
async fn removed_endpoint_is_not_admitted() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let boot_id = fixture.element.boot_id();
    let remove = RemoveEndpointsRequest { boot_id, endpoints: vec![caller.endpoint] };
    fixture.control.remove_endpoints(remove).await.unwrap();
    caller.send(&keyed(caller.base(FrameKind::MapData, &server, 1), MapFlags::ADD, &[(0, 7)])).await;
    assert!(server.receive().await.base().has(pathcall_wire::Flags::NOT_ADMITTED));
    fixture.control.remove(RemoveRequest { boot_id, gaid: GAID }).await.unwrap();
    let gone = fixture.control.read_registers(ReadRegistersRequest { gaid: GAID, row: 0, rows: 1 }).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn last_admitted_frame_is_recorded() {
    let mut fixture = fixture().await;
    let (server, caller) = (fixture.host(SERVER).await, fixture.host(11).await);
    let mut stale = caller.base(FrameKind::MapData, &server, 1);
    stale.epoch = EPOCH + 1;
    caller.send(&keyed(stale, MapFlags::ADD, &[(0, 7)])).await;
    server.receive().await;
    let seen = fixture.control.last_seen(LastSeenRequest {}).await.unwrap().into_inner().age_ns;
    assert!(seen.is_empty(), "only admitted frames count: {seen:?}");

    let before = std::time::Instant::now();
    caller.send(&keyed(caller.base(FrameKind::MapData, &server, 1), MapFlags::ADD, &[(0, 7)])).await;
    caller.receive().await;
    let age = fixture.control.last_seen(LastSeenRequest {}).await.unwrap().into_inner().age_ns[&GAID];
    assert!(u128::from(age) <= before.elapsed().as_nanos());
}

#[tokio::test]
async fn port_in_use_error_names_option() {
    let first = run(config()).await.unwrap();
    let data = first.data_addr();
    let error = run(config().data(data)).await.unwrap_err().to_string();
    let expected = "another element may be running; choose another with --data";
    assert_eq!(error, format!("UDP port {} is in use on 127.0.0.1: {expected}", data.port()));

    let control = first.control_addr();
    let error = run(config().control(control)).await.unwrap_err().to_string();
    let expected = "another element may be running; choose another with --control";
    assert_eq!(error, format!("TCP port {} is in use on 127.0.0.1: {expected}", control.port()));
}

#[tokio::test]
async fn invalid_configuration_is_refused() {
    let elsewhere = "192.0.2.1:0".parse().unwrap();
    let error = run(config().data(elsewhere)).await.unwrap_err().to_string();
    assert_eq!(error, "192.0.2.1 is not an address of this machine: choose one with --data");

    for got in ["", "localhost", "http://", "127.0.0.1:7700", "ftp://127.0.0.1:7700"] {
        let error = run(config().controller(Some(got.into()))).await.unwrap_err().to_string();
        let expected = "expected http://host:port, as in http://127.0.0.1:7700";
        assert_eq!(error, format!("controller address {got:?}: {expected}"));
    }

    let controller = Some("http://127.0.0.1:7700".to_owned());
    let error = run(config().data("0.0.0.0:0".parse().unwrap()).controller(controller)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "0.0.0.0:0 (frames) cannot be reached from other machines: set a reachable address with --advertise"
    );
}

#[tokio::test]
async fn shutdown_frees_both_ports() {
    let (data, control) = (loopback::own(), loopback::own());
    let mut fixture = fixture_with(config().data(data).control(control)).await;
    fixture.counters().await;
    fixture.element.shutdown().await;
    let again = run(config().data(data).control(control)).await.unwrap();
    assert_eq!((again.data_addr(), again.control_addr()), (data, control));
}

#[tokio::test]
async fn each_start_has_new_boot_id() {
    let (a, b) = (run(config()).await.unwrap(), run(config()).await.unwrap());
    assert_ne!(a.boot_id(), b.boot_id());
}
