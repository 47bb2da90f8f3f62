//! Several accelerators in virtual time: all of them are used, by their speed.

use super::stations::{Case, PARTLY_SHARED, SEVERAL};
use super::{US, closed_loop, throughput};
use pathcall_place::SelectionStrategy;

const CHOOSING: [SelectionStrategy; 2] = [SelectionStrategy::Leo, SelectionStrategy::Late];

/// Messages per second that all devices can do together.
fn capacity<const DEVICES: usize>(case: &Case<DEVICES>) -> f64 {
    case.rates().iter().sum()
}

#[test]
fn two_equal_accelerators_are_twice_as_fast_as_one() {
    // The processor's part is a hundredth.
    let one = Case::new("one", [10_000 * US, 100 * US]);
    let two = Case::new("two", [10_000 * US, 100 * US, 100 * US]);
    for strategy in
        [SelectionStrategy::Leo, SelectionStrategy::Late, SelectionStrategy::AllAcc, SelectionStrategy::ShortestQueue]
    {
        let times = throughput(&two, strategy) / throughput(&one, strategy);
        println!("{}: {times:.3}", strategy.name());
        assert!(times > 1.94, "{}: {times:.3}", strategy.name());
    }
    let [cpu, late] =
        [SelectionStrategy::AllCpu, SelectionStrategy::Late].map(|strategy| closed_loop(&two, strategy).1);
    assert_eq!(cpu[1..], [0, 0], "all-cpu uses no accelerator");
    assert!(late[1..].iter().all(|share| *share > 9_000), "{late:?}");
}

#[test]
fn accelerators_get_shares_by_their_speed() {
    let mut wrong = Vec::new();
    for case in SEVERAL {
        for strategy in CHOOSING {
            let (per_second, shares) = closed_loop(&case, strategy);
            let (all, sent) = (capacity(&case), shares.iter().sum::<usize>() as f64);
            let line = format!("{:<44} {:<5} {:.3} {shares:?}", case.name, strategy.name(), per_second / all);
            println!("{line}");
            let is_fair = case.rates().iter().zip(shares).all(|(rate, share)| {
                let due = sent * rate / all;
                (share as f64 - due).abs() < 0.1 * due + 200.0
            });
            if per_second < 0.95 * all || !is_fair {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn late_binding_leaves_out_accelerator_that_slows_processor_down() {
    let [cpu, acc, late] = [SelectionStrategy::AllCpu, SelectionStrategy::AllAcc, SelectionStrategy::Late]
        .map(|strategy| throughput(&PARTLY_SHARED, strategy));
    // Two cores, and the accelerator of its own.
    let best = cpu + 1e9 / (100 * US) as f64;
    println!("all-cpu {cpu:.0}, all-acc {acc:.0}, late {late:.0} of {best:.0}");
    assert!(late > 0.96 * best, "{late:.0} of {best:.0}");
}
