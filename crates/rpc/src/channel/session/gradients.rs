//! Sums of gradients in small values (key `lanes`): the channel makes one sum or several of each call, and keeps what is
//! rounded off, and the scales, for the next one.
//!
//! One call's sums follow each other without another call's between them, so that all workers sum the same: calls of an
//! application wait for each other, first come, first served.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use pathcall_endpoint::map::gradient::{GradientError, GradientFormat, GradientState, GradientSum};
use pathcall_endpoint::map::{Lanes, Output};
use pathcall_proto::manifest::{Kind, Method};
use tonic::Status;

use super::{MapSession, SumCancelGuard};
use crate::channel::Inner;
use crate::headers;
use crate::message::typed::TypedValues;

/// Maximum number of gradients of an application. The one that was summed longest ago is forgotten for another.
const GRADIENTS_MAX: usize = 1 << 10;

/// Name and length of a gradient.
type GradientName = (Box<[u8]>, usize);

/// What a worker keeps of its gradients.
#[derive(Debug, Default)]
pub(super) struct KeptGradients {
    kept: BTreeMap<GradientName, (u64, GradientState)>,
    /// Number of sums.
    sums: u64,
}

impl KeptGradients {
    /// State of a gradient.
    fn of(&mut self, name: GradientName) -> &mut GradientState {
        if self.kept.len() >= GRADIENTS_MAX && !self.kept.contains_key(&name) {
            let oldest = self.kept.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.kept.remove(&name));
        }
        self.sums += 1;
        let (used, state) = self.kept.entry(name).or_default();
        *used = self.sums;
        state
    }
}

impl Inner {
    /// Sums a gradient over all workers.
    pub(in crate::channel) async fn sum_gradient(
        self: &Arc<Self>,
        method: &Method,
        session: &Arc<MapSession>,
        headers: &HeaderMap,
        gradient: Vec<f32>,
    ) -> Result<TypedValues, Status> {
        let (Some(application), Kind::Sum { threshold, .. }) = (self.applications.get(method.app), method.kind) else {
            return Err(Status::internal(format!("{}: only a sum has lanes of {}", method.path, method.lanes.name())));
        };
        let format = GradientFormat { lanes: method.lanes, workers: threshold, topk: method.topk };
        // A call that is dropped while it waits leaves the other workers' sum incomplete, too.
        let guard = SumCancelGuard::new(self, method, session);
        let mut kept = application.gradients.lock().await;
        let tensor = headers.get(headers::TENSOR).map(|name| name.as_bytes()).unwrap_or_default();
        let state = kept.of((tensor.into(), gradient.len()));
        let mut sum = match GradientSum::new(format, state, gradient) {
            Ok(sum) => sum,
            Err(error) => {
                guard.disarm();
                return Err(of_gradient(method, &error));
            }
        };
        while let Some(operation) = sum.operation() {
            let sums = match session.call(method, operation, |_| {}).await {
                Ok(Output::Sums(sums)) => sums,
                Ok(_) => Lanes::default(),
                Err(status) => {
                    guard.disarm();
                    return Err(status);
                }
            };
            // The guard reports a worker that stops here: the others would wait for its next part.
            sum.take(&sums).map_err(|error| of_gradient(method, &error))?;
        }
        guard.disarm();
        application.mark_server_state(method, session);
        Ok(TypedValues::Floats(sum.finish(state)))
    }
}

fn of_gradient(method: &Method, error: &GradientError) -> Status {
    let text = format!("{} ({}): {error}", method.path, method.app);
    match error {
        GradientError::Value { .. } => Status::invalid_argument(text),
        GradientError::Scale => Status::failed_precondition(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_gradient_is_forgotten_at_limit() {
        let mut kept = KeptGradients::default();
        let name = |number: usize| (Box::from(number.to_string().as_bytes()), 1);
        for number in 0..GRADIENTS_MAX {
            kept.of(name(number));
        }
        kept.of(name(0));
        kept.of(name(GRADIENTS_MAX));
        assert_eq!(kept.kept.len(), GRADIENTS_MAX);
        assert!(kept.kept.contains_key(&name(0)) && !kept.kept.contains_key(&name(1)));
    }
}
