//! Placed call in the selector: its path, the wait for it, and the outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as Clock;

use pathcall_place::explain::RequestLog;
use pathcall_place::select::Config;
use pathcall_place::{
    Decision, DeviceRole, Dispatch, KindId, Paths, Released, RequestOutcome, SelectionRequest, SelectionStrategy,
    Selector, Ticket,
};
use pathcall_wire::Instant;
use tokio::sync::oneshot;

use super::PlaceStats;
use super::accelerator::AcceleratorFailure;

/// Number of calls of an application that are kept for explanation.
const EXPLAINED_MAX: usize = 1024;

/// Application with placed methods on this host.
#[derive(Debug)]
pub(super) struct PlacedApplication {
    pub(super) paths: Paths,
    began: Clock,
    state: Mutex<SelectorState>,
}

#[derive(Debug)]
struct SelectorState {
    selector: Selector,
    log: RequestLog,
    /// Waiting calls by [`Ticket::index`]. A dropped call receives `None`.
    waiting: Vec<Option<oneshot::Sender<Option<Dispatch>>>>,
}

impl PlacedApplication {
    /// Creates the application without calls.
    pub(super) fn new(mut paths: Paths, strategy: SelectionStrategy, config: Config) -> Arc<Self> {
        // Calls on one path are separate tasks and may overtake each other.
        paths.paths.iter_mut().for_each(|path| path.fifo = false);
        // Capacity of the selector, at least one call.
        let max = config.in_flight_max.clamp(1, Config::IN_FLIGHT_MAX);
        let state = SelectorState {
            selector: Selector::new(&paths, strategy, config),
            log: RequestLog::new(EXPLAINED_MAX),
            waiting: std::iter::repeat_with(|| None).take(max as usize).collect(),
        };
        Arc::new(Self { paths, began: Clock::now(), state: Mutex::new(state) })
    }

    fn now(&self) -> Instant {
        Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Held briefly, by code that does not panic.
    fn lock(&self) -> MutexGuard<'_, SelectorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call to the selector; `None` if it is full.
    pub(super) fn select(self: &Arc<Self>, kind: KindId, address: u64) -> Option<PlacedCall> {
        let (now, mut state) = (self.now(), self.lock());
        let SelectorState { selector, log, .. } = &mut *state;
        log.snapshot_paths(now, &self.paths, selector, kind);
        let (ticket, dispatch) = match selector.select(now, &SelectionRequest { kind, address, message: address }) {
            Decision::Send(dispatch) => (dispatch.ticket, Some(dispatch)),
            Decision::Wait { ticket } => (ticket, None),
            Decision::Full => return None,
        };
        let record = log.record_request(now, address, kind, dispatch.is_none());
        let step = match dispatch {
            Some(dispatch) => {
                log.record_path(record, dispatch.path, dispatch.reason);
                Step::Go(dispatch)
            }
            None => {
                let step = Step::Wait(state.wait(ticket));
                // A device may take another call now.
                state.drain(now);
                step
            }
        };
        Some(PlacedCall { application: Arc::clone(self), ticket, record, step })
    }

    /// Waits for the selector's decision. Meanwhile the selector looks for devices that stand still.
    async fn wait_turn(&self, receiver: &mut oneshot::Receiver<Option<Dispatch>>) -> Option<Dispatch> {
        loop {
            let poll_at = self.lock().selector.poll_at();
            let due = async {
                match poll_at {
                    Some(at) => tokio::time::sleep(at.since(self.now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The sender lives as long as the application.
                decided = &mut *receiver => return decided.ok().flatten(),
                () = due => {
                    let now = self.now();
                    self.lock().drain(now);
                }
            }
        }
    }

    /// Last calls, the newest last: a line each.
    pub(super) fn explain_lines(&self, count: usize) -> Vec<String> {
        let state = self.lock();
        state.log.recent(count, &self.paths).map(|line| format!("{} {line}\n", self.paths.application)).collect()
    }

    /// Counters of the paths, a line each.
    pub(super) fn status(&self) -> String {
        self.stats().iter().map(|way| format!("{way}\n")).collect()
    }

    pub(super) fn stats(&self) -> Vec<PlaceStats> {
        let state = self.lock();
        let kinds = self
            .paths
            .kinds
            .iter()
            .flat_map(|kind| (kind.first.0..kind.first.0 + kind.count).map(move |id| (kind, id)));
        let stats = kinds.map(|(kind, id)| {
            let id = pathcall_place::PathId(id);
            let path = self.paths.path(id);
            PlaceStats {
                application: self.paths.application.clone(),
                request: kind.name.clone(),
                path: path.name.clone(),
                role: path.role,
                traverse_ns: path.traverse_ns,
                toll_ns: path.toll_ns,
                state: state.selector.state(id),
            }
        });
        stats.collect()
    }
}

impl SelectorState {
    fn wait(&mut self, ticket: Ticket) -> oneshot::Receiver<Option<Dispatch>> {
        let (sender, receiver) = oneshot::channel();
        self.waiting[ticket.index()] = Some(sender);
        receiver
    }

    /// Records the outcome of a call and starts calls that may start now.
    fn end(&mut self, now: Instant, ticket: Ticket, outcome: RequestOutcome) {
        self.selector.done(now, ticket, outcome);
        self.drain(now);
    }

    /// Starts the calls that may start now.
    fn drain(&mut self, now: Instant) {
        while let Some(released) = self.selector.poll(now) {
            let (ticket, dispatch) = match released {
                Released::Send(dispatch) => (dispatch.ticket, Some(dispatch)),
                Released::GivenUp { ticket } => (ticket, None),
            };
            // A call that was dropped meanwhile reports this itself.
            if let Some(sender) = self.waiting[ticket.index()].take() {
                let _ = sender.send(dispatch);
            }
        }
    }
}

/// Placed call in the selector. Dropping it before its end abandons the call.
pub(super) struct PlacedCall {
    application: Arc<PlacedApplication>,
    ticket: Ticket,
    /// Number in the log.
    record: u64,
    step: Step,
}

enum Step {
    Go(Dispatch),
    Wait(oneshot::Receiver<Option<Dispatch>>),
    Over,
}

impl PlacedCall {
    /// Device that has to answer, and the start time; `None` if no path is left. Waits for the selector's decision.
    pub(super) async fn next_role(&mut self) -> Option<(DeviceRole, Clock)> {
        let dispatch = match &mut self.step {
            Step::Go(dispatch) => Some(*dispatch),
            Step::Wait(receiver) => {
                let dispatch = self.application.wait_turn(receiver).await;
                dispatch.inspect(|dispatch| {
                    self.application.lock().log.record_path(self.record, dispatch.path, dispatch.reason)
                })
            }
            Step::Over => None,
        };
        match dispatch {
            Some(dispatch) => {
                self.step = Step::Go(dispatch);
                Some((self.application.paths.path(dispatch.path).role, Clock::now()))
            }
            None => {
                // No device does the call: calls that must come after it need not wait.
                if !matches!(self.step, Step::Over) {
                    self.end(RequestOutcome::Abandoned);
                }
                self.step = Step::Over;
                None
            }
        }
    }

    /// Records that the call is answered.
    pub(super) fn done(&mut self, begun: Clock) {
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = self.application.now();
        let mut state = self.application.lock();
        state.log.record_end(self.record, None, took);
        state.end(now, self.ticket, RequestOutcome::Done { intra_ns: Some(took), total_ns: took });
        drop(state);
        self.step = Step::Over;
    }

    /// Records that the accelerator has failed; the selector chooses again.
    pub(super) fn failed(&mut self, failure: &AcceleratorFailure) {
        let path = if let Step::Go(dispatch) = &self.step { Some(dispatch.path) } else { None };
        let now = self.application.now();
        let mut state = self.application.lock();
        state.log.record_failure(self.record, path, &failure.to_string());
        self.step = Step::Wait(state.wait(self.ticket));
        state.end(now, self.ticket, RequestOutcome::Failed);
    }

    fn end(&self, outcome: RequestOutcome) {
        let now = self.application.now();
        self.application.lock().end(now, self.ticket, outcome);
    }
}

impl Drop for PlacedCall {
    fn drop(&mut self) {
        if !matches!(self.step, Step::Over) {
            self.end(RequestOutcome::Abandoned);
        }
    }
}

#[cfg(test)]
mod tests {
    use pathcall_place::model::Preset;
    use pathcall_place::{Application, Hardware};

    use super::*;

    const APPLICATION: &str = "application: one
tasks: { work: { cpu: 1 us, acc: 1 us } }
requests:
  GET:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-cpu, bytes: 8 B, reply: 8 B, responder: work }]
      - trips: [{ path: cpu-acc, bytes: 8 B, reply: 8 B, responder: work }]
";

    #[test]
    fn capacity_zero_admits_one_call() {
        let application = Application::parse("one.yaml", APPLICATION).unwrap();
        let paths = Paths::of_host(&Hardware::preset(Preset::Direct), &application).unwrap();
        let application = PlacedApplication::new(paths, SelectionStrategy::Leo, Config::default().in_flight_max(0));
        let mut call = application.select(KindId(0), 0).expect("room for one");
        assert!(application.select(KindId(0), 0).is_none());
        // The failed call waits for its step decision, which needs room, too.
        call.failed(&AcceleratorFailure::Panic);
        drop(call);
        assert!(application.select(KindId(0), 0).is_some());
    }
}
