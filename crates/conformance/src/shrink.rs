//! Fewer steps that still show a difference.

use crate::Step;
use crate::differ::What;

/// At most so many times steps are played again.
const PLAYS_MAX: usize = 3_000;

/// Drops steps, first many at once and then one by one, as long as `play` still finds a difference.
/// The steps that are left, the last of which shows it, and what it is.
pub(crate) fn shrink(
    steps: &[Step],
    what: What,
    mut play: impl FnMut(&[Step]) -> Option<(usize, What)>,
) -> (Vec<Step>, What) {
    let (mut steps, mut what) = (steps.to_vec(), what);
    let (mut size, mut plays) = (steps.len() / 2, 0);
    while size > 0 {
        let before = steps.len();
        // From the end: what comes later builds on what came before.
        let mut end = steps.len().saturating_sub(1);
        while end > 0 && plays < PLAYS_MAX {
            let start = end.saturating_sub(size);
            let fewer: Vec<_> = steps[..start].iter().chain(&steps[end..]).cloned().collect();
            plays += 1;
            if let Some((at, found)) = play(&fewer) {
                (steps, what) = (fewer, found);
                steps.truncate(at + 1);
            }
            end = start.min(steps.len().saturating_sub(1));
        }
        // One by one until nothing more goes.
        if size > 1 || steps.len() == before || plays >= PLAYS_MAX {
            size /= 2;
        }
    }
    (steps, what)
}
