//! gRPC service `Element`: turns each call into a command for the data thread.
//!
//! A change names the boot id of the element that it is meant for. After a restart the tables are empty, and a change
//! that builds on the earlier ones must be refused.

use std::net::SocketAddr;

use pathcall_program::{Endpoint, InstalledApplication, InstalledPool, TableChangeError};
use pathcall_proto::v1::element_server::Element;
use pathcall_proto::v1::{
    CountersReply, CountersRequest, ElementReply, EndpointEntry, InstallApplicationRequest, InstallPoolRequest,
    LastSeenReply, LastSeenRequest, ReadRegistersReply, ReadRegistersRequest, RemoveEndpointsRequest, RemoveRequest,
    ResetRegistersRequest, SetEndpointsRequest, SetMulticastGroupRequest,
};
use pathcall_wire::TokenKey;
use tonic::{Code, Request, Response, Status};

use crate::plane::{Plane, PlaneHandle, Stopped};
use crate::switch::CommandRefused;

/// Characters of an invalid address that an error message repeats.
const ADDRESS_ECHO_MAX: usize = 80;

/// Control service of one start of an element.
#[derive(Debug)]
pub(crate) struct Control {
    boot_id: u64,
    plane: PlaneHandle,
}

type Reply<T> = Result<Response<T>, Status>;

impl Control {
    pub(crate) fn new(boot_id: u64, plane: PlaneHandle) -> Self {
        Self { boot_id, plane }
    }

    /// Makes a change on the data thread if the boot id matches this start of the element.
    async fn change(
        &self,
        boot_id: u64,
        change: impl FnOnce(&mut Plane) -> Result<(), CommandRefused> + Send + 'static,
    ) -> Reply<ElementReply> {
        if boot_id != self.boot_id {
            return Err(Status::failed_precondition(format!(
                "the change was meant for another start of this element: its boot id is {:#018x}, expected {boot_id:#018x}",
                self.boot_id
            )));
        }
        self.plane.call(change).await??;
        Ok(Response::new(ElementReply {}))
    }
}

#[tonic::async_trait]
impl Element for Control {
    async fn install_application(&self, request: Request<InstallApplicationRequest>) -> Reply<ElementReply> {
        let InstallApplicationRequest { boot_id, application } = request.into_inner();
        let application = application.ok_or_else(|| Status::invalid_argument("application: missing"))?;
        let key = application.token_key.map(|key| TokenKey::new(key.into()));
        let application = InstalledApplication {
            gaid: application.gaid,
            epoch: application.epoch,
            owner: application.owner,
            row_base: application.row_base,
            rows: application.rows,
            lane_base: application.lane_base,
            width: application.width,
        };
        self.change(boot_id, move |plane| plane.switch().install(application, key)).await
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Reply<ElementReply> {
        let RemoveRequest { boot_id, gaid } = request.into_inner();
        self.change(boot_id, move |plane| plane.switch().remove(gaid)).await
    }

    async fn set_endpoints(&self, request: Request<SetEndpointsRequest>) -> Reply<ElementReply> {
        let SetEndpointsRequest { boot_id, endpoints } = request.into_inner();
        let endpoints = endpoints.iter().map(endpoint).collect::<Result<Vec<_>, _>>()?;
        self.change(boot_id, move |plane| plane.switch().set_endpoints(&endpoints)).await
    }

    async fn remove_endpoints(&self, request: Request<RemoveEndpointsRequest>) -> Reply<ElementReply> {
        let RemoveEndpointsRequest { boot_id, endpoints } = request.into_inner();
        self.change(boot_id, move |plane| plane.switch().remove_endpoints(&endpoints)).await
    }

    async fn set_multicast_group(&self, request: Request<SetMulticastGroupRequest>) -> Reply<ElementReply> {
        let SetMulticastGroupRequest { boot_id, gaid, endpoints } = request.into_inner();
        self.change(boot_id, move |plane| plane.switch().set_group(gaid, &endpoints)).await
    }

    async fn install_pool(&self, request: Request<InstallPoolRequest>) -> Reply<ElementReply> {
        let InstallPoolRequest { boot_id, gaid, version, servers, token_key } = request.into_inner();
        let key = token_key.map(|key| TokenKey::new(key.into()));
        let pool = InstalledPool { gaid, version, servers };
        self.change(boot_id, move |plane| plane.switch().install_pool(pool, key)).await
    }

    async fn read_registers(&self, request: Request<ReadRegistersRequest>) -> Reply<ReadRegistersReply> {
        let ReadRegistersRequest { gaid, row, rows } = request.into_inner();
        let read = self.plane.call(move |plane| plane.switch().read_registers(gaid, row, rows)).await??;
        Ok(Response::new(read))
    }

    async fn reset_registers(&self, request: Request<ResetRegistersRequest>) -> Reply<ElementReply> {
        let ResetRegistersRequest { boot_id, gaid } = request.into_inner();
        self.change(boot_id, move |plane| plane.switch().reset_registers(gaid)).await
    }

    async fn counters(&self, _: Request<CountersRequest>) -> Reply<CountersReply> {
        Ok(Response::new(self.plane.call(|plane| plane.counters()).await??))
    }

    async fn last_seen(&self, _: Request<LastSeenRequest>) -> Reply<LastSeenReply> {
        let age_ns = self.plane.call(|plane| plane.switch().last_seen_ages_ns()).await??;
        Ok(Response::new(LastSeenReply { age_ns }))
    }
}

/// Converts an entry of the endpoint table into the endpoint and the address that its frames are sent to.
fn endpoint(entry: &EndpointEntry) -> Result<(Endpoint, SocketAddr), Status> {
    let got = &entry.data_address;
    let addr = got.parse().ok().filter(|addr: &SocketAddr| addr.port() != 0 && !addr.ip().is_unspecified());
    let addr = addr.ok_or_else(|| {
        let (endpoint, got) = (entry.endpoint, got.chars().take(ADDRESS_ECHO_MAX).collect::<String>());
        Status::invalid_argument(format!("data_address of endpoint {endpoint}: expected ip:port, got {got:?}"))
    })?;
    let EndpointEntry { endpoint, incarnation, gaid, slot_base, slots, .. } = *entry;
    Ok((Endpoint { endpoint, incarnation, gaid, slot_base, slots }, addr))
}

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Self::unavailable(stopped.to_string())
    }
}

impl From<CommandRefused> for Status {
    /// Maps to `FAILED_PRECONDITION` only a wrong boot id: that code makes the controller start over.
    fn from(refused: CommandRefused) -> Self {
        let code = match refused {
            CommandRefused::Table(TableChangeError::UnknownApplication(_) | TableChangeError::UnknownEndpoint(_)) => {
                Code::NotFound
            }
            CommandRefused::Table(TableChangeError::Range { .. }) => Code::OutOfRange,
            CommandRefused::Table(TableChangeError::Overlap { .. } | TableChangeError::Taken { .. }) => {
                Code::AlreadyExists
            }
            CommandRefused::Table(TableChangeError::Twice(_)) => Code::InvalidArgument,
            CommandRefused::ReadSize { .. } => Code::InvalidArgument,
            CommandRefused::Endpoints { .. } | CommandRefused::Kernel(_) => Code::ResourceExhausted,
        };
        Self::new(code, refused.to_string())
    }
}
