//! Step interface of a run in virtual time, for a run alone or as a part of a combined run.

use pathcall_wire::Instant;

/// Run in virtual time that proceeds step by step.
pub(crate) trait SteppedRun {
    /// Violations that the run can report.
    type Violation;

    /// Time of the next event; `None`: the run has ended.
    fn next(&self) -> Option<Instant>;

    /// Executes the next event.
    fn step(&mut self) -> Result<(), Self::Violation>;

    /// Host of the next event, if the event has to wait while the host's machine is paused.
    fn host(&self) -> Option<usize>;

    /// Postpones the next event to this time, behind all events at that time.
    fn wait(&mut self, until: Instant);

    /// Runs the final checks.
    fn check_end(&mut self) -> Result<(), Self::Violation>;

    /// Plays the run alone, to its end.
    fn play(&mut self) -> Result<(), Self::Violation> {
        while self.next().is_some() {
            self.step()?;
        }
        self.check_end()
    }
}
