//! Calls of methods with a filter by plain gRPC clients, which have no channel: the layer makes them as a whole.
//!
//! ```text
//! checks of the services ─► additions, queries: as a direct call
//!                        ─► counts, clears:     by a member in this process, past the element
//!                        ─► sums of one caller: here
//!                        ─► sums of several callers, locks: refused
//! ```
//!
//! A plain gRPC call is one request. It has no worker number, so it cannot be one of several parts of a sum; and it does
//! not renew a lease, so it cannot hold a lock.

use http::request::Parts;
use pathcall_endpoint::map::{Key, Operation};
use pathcall_proto::manifest::{ForwardTarget, Kind, Method};
use tonic::Status;

use super::Inner;
use crate::application::Application;
use crate::key_numbers;
use crate::message::typed::TypedValues;
use crate::request::{MapAnswer, MapWork, modified};
use crate::status;

/// RPC whose access rules decide about a caller with a certificate: those of callers that join.
const RPC: &str = "Peer/Join";

/// Refuses a method whose filter has no meaning for a plain gRPC call.
pub(super) fn check(method: &Method, application: &Application) -> Result<(), Status> {
    let reason = match method.kind {
        Kind::Sum { threshold: 2.., .. } => "which sums over several callers",
        Kind::Sum { .. } if method.to == ForwardTarget::Server => "whose sums go to the handler",
        Kind::Count { threshold: 1, .. } => "which takes locks, and their leases have to be renewed",
        Kind::Clear if application.takes_locks => "which releases locks, and plain gRPC callers hold none",
        _ => return Ok(()),
    };
    let Method { path, app, .. } = method;
    Err(Status::failed_precondition(format!(
        "{path} has the filter {app}, {reason}: call it through pathcall::Channel"
    )))
}

impl Inner {
    /// Checks the access of a plain gRPC caller with a certificate, as if it joined the application.
    pub(super) fn check_plain_caller(&self, method: &Method, parts: &Parts) -> Result<(), Status> {
        self.guard.check_application(&parts.extensions, RPC, method.app)
    }

    /// Makes the map operation of a plain gRPC call that is no addition and no query.
    pub(super) async fn count_or_clear(
        &self,
        method: &Method,
        typed: Option<TypedValues>,
    ) -> Result<MapAnswer, Status> {
        let owned = self.owned(method)?;
        let typed = match typed {
            Some(typed) => typed,
            // A method without a field for keys clears all.
            None => TypedValues::Pairs(self.read(method, None).await?),
        };
        if let (Some(field), TypedValues::Pairs(pairs)) = (&method.request, &typed) {
            key_numbers::check(field.name, pairs)?;
        }
        let mut work = MapWork::new(method, typed);
        let Some(mut operation) = work.operation.take() else { return Ok(work.answer(method, None)) };
        match &mut operation {
            Operation::Sum { lanes, modify, .. } => {
                // Sums over one caller are its own values.
                let sums = modified(&TypedValues::Lanes(std::mem::take(lanes)), *modify);
                return Ok(MapAnswer::of(sums.map_err(|error| status::of_call(method, &error))?));
            }
            Operation::Add { pairs, .. } => owned.key_numbers.shorten(method.app, keys_of(pairs))?,
            Operation::Count { keys, .. } | Operation::Clear { keys, .. } | Operation::Read { keys, .. } => {
                owned.key_numbers.shorten(method.app, keys.iter_mut())?;
            }
        }
        let called = owned.ensure_active().handle.call_alone(|| owned.own_id(), operation).await;
        let output = called.map_err(|error| status::of_call(method, &error))?;
        Ok(work.answer(method, Some(output)))
    }
}

/// Keys of pairs, to change them.
pub(super) fn keys_of(pairs: &mut [(Key, i64)]) -> impl Iterator<Item = &mut Key> {
    pairs.iter_mut().map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use pathcall_proto::manifest::ClearPolicy;

    use super::*;
    use crate::application::Catalogue;
    use pathcall_proto::manifest::Manifest;

    const fn method(path: &'static str, app: &'static str, kind: Kind) -> Method {
        Method { path, app, kind, ..Method::DEFAULT }
    }

    const SRC: ForwardTarget = ForwardTarget::Src;
    const SUM: Kind = Kind::Sum { threshold: 2, clear: ClearPolicy::Copy };

    static METHODS: Manifest = Manifest {
        methods: &[
            method("/a/Add", "keyed", Kind::Add { get: false, to: SRC }),
            method("/a/Clear", "keyed", Kind::Clear),
            method("/a/Lock", "locks", Kind::Count { threshold: 1, to: SRC }),
            method("/a/One", "one", Kind::Sum { threshold: 1, clear: ClearPolicy::Copy }),
            method("/a/Query", "keyed", Kind::Query),
            method("/a/Release", "locks", Kind::Clear),
            method("/a/Sum", "sum", SUM),
            method("/a/Vote", "votes", Kind::Count { threshold: 2, to: SRC }),
        ],
        delegated: &[],
        cloned: &[],
        placed: &[],
        descriptor: &[],
    };

    #[test]
    fn sums_of_several_callers_and_locks_are_refused() {
        let mut catalogue = Catalogue::default();
        catalogue.push(&METHODS);
        let applications = catalogue.applications().expect("no conflict");
        let refused = METHODS.methods.iter().filter_map(|method| {
            let status = check(method, &applications[method.app]).err()?;
            assert_eq!(status.code(), tonic::Code::FailedPrecondition);
            Some(method.path)
        });
        assert_eq!(refused.collect::<Vec<_>>(), ["/a/Lock", "/a/Release", "/a/Sum"]);
    }
}
