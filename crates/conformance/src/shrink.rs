//! Reduction of a sequence of steps that shows a difference.

use crate::ProgramStep;
use crate::differ::DifferenceKind;

/// Largest number of repeated runs.
const PLAYS_MAX: usize = 3_000;

/// Drops steps, first in large groups, then one by one, while `play` still finds a difference. Returns the remaining
/// steps, the last of which shows the difference, and its kind.
pub(crate) fn shrink(
    steps: &[ProgramStep],
    what: DifferenceKind,
    mut play: impl FnMut(&[ProgramStep]) -> Option<(usize, DifferenceKind)>,
) -> (Vec<ProgramStep>, DifferenceKind) {
    let (mut steps, mut what) = (steps.to_vec(), what);
    let (mut size, mut plays) = (steps.len() / 2, 0);
    while size > 0 {
        let before = steps.len();
        // From the end, since later steps depend on earlier ones.
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
        // Single steps until none can be dropped.
        if size > 1 || steps.len() == before || plays >= PLAYS_MAX {
            size /= 2;
        }
    }
    (steps, what)
}
