//! What goes on in virtual time: by itself, or beside others.

use pathcall_wire::Instant;

/// A run, step by step.
pub(crate) trait Part {
    /// What may be wrong.
    type Wrong;

    /// When something happens next; `None`: it is over.
    fn next(&self) -> Option<Instant>;

    /// That happens.
    fn step(&mut self) -> Result<(), Self::Wrong>;

    /// The host that this happens at, if it has to wait there while its machine stands still.
    fn host(&self) -> Option<usize>;

    /// It waits until then, behind all that happens then.
    fn wait(&mut self, until: Instant);

    /// It is over: whether all was right.
    fn over(&mut self) -> Result<(), Self::Wrong>;

    /// Plays it by itself.
    fn play(&mut self) -> Result<(), Self::Wrong> {
        while self.next().is_some() {
            self.step()?;
        }
        self.over()
    }
}
