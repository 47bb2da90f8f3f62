//! Tests of steps in one thread, and under a model checker.

use super::*;

#[derive(Debug)]
struct PlainNumber(Vec<AtomicU32>);

impl StepMemory for PlainNumber {
    type StepWord = AtomicU32;
    fn cells(&self) -> &[AtomicU32] {
        &self.0
    }
}

fn all(ranks: usize) -> Vec<Steps<PlainNumber>> {
    let memory = Arc::new(PlainNumber((0..words_for(ranks)).map(|_| AtomicU32::new(0)).collect()));
    (0..ranks).map(|rank| Steps::new(Arc::clone(&memory), rank)).collect()
}

#[test]
fn step_counts_wrap() {
    let [one, other] = all(2).try_into().unwrap();
    for step in [0, 1, i32::MAX as u32, u32::MAX, u32::MAX.wrapping_add(1), 7] {
        one.publish(step);
        assert!(other.has_reached(0, step) && other.has_reached(0, step.wrapping_sub(1)), "{step}");
        assert!(!other.has_reached(0, step.wrapping_add(1)), "{step}");
    }
    assert!(other.has_reached(1, 0) && !other.has_reached(1, 1));
}

#[test]
fn first_failure_is_kept() {
    let [one, other] = all(2).try_into().unwrap();
    assert_eq!(one.failure(), None);
    assert_eq!(one.fail(2, 1, RankLossReason::Died), (1, RankLossReason::Died));
    assert_eq!(other.fail(2, 0, RankLossReason::Late), (1, RankLossReason::Died));
    assert_eq!(other.failure(), Some((1, RankLossReason::Died)));
    assert!(!one.has_left(1));
    other.leave();
    assert!(one.has_left(1) && !one.has_left(0));
}

#[test]
fn tasks_and_claims_are_per_rank() {
    let [one, other, third] = all(3).try_into().unwrap();
    one.set_task(4, [1, 2, 3, 4]);
    one.set_task(5, [5, 6, 7, 8]);
    other.set_task(4, [9; TASK_WORDS]);
    assert_eq!((third.task(0, 4), third.task(0, 5), third.task(1, 4)), ([1, 2, 3, 4], [5, 6, 7, 8], [9; 4]));
    assert_eq!(third.task(2, 4), [0; TASK_WORDS]);

    assert_eq!((one.claim(0, 0), other.claim(0, 0), other.claim(1, 0)), (0, 1, 0));
    assert!(third.is_claimed(0, 0, 2) && !third.is_claimed(0, 0, 3) && !third.is_claimed(0, 1, 1));
    assert_eq!(third.claim(0, 1), 0);
    one.reset_claims(0);
    assert_eq!((third.claim(0, 1), third.claim(0, 0)), (0, 2));
}

#[test]
fn shared_processors_count_once() {
    let three = all(3);
    let may = [[0, 1, 1000], [0, 1, 0], [1, 1, 1]];
    for (steps, cpus) in three.iter().zip(may) {
        steps.set_cpus(|cpu| cpus.contains(&cpu));
    }
    assert!(three[0].cpus_suffice(3));
    three[0].set_cpus(|cpu| cpu == 0);
    assert!(!three[0].cpus_suffice(3));
}

/// Model checks: all interleavings of threads that the memory model allows.
mod model {
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::fence;
    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// Word with the kernel's sleep queue; only the used words exist, because the checker's are expensive.
    struct Word(Option<(loom::sync::atomic::AtomicU32, Mutex<()>, Condvar)>);

    impl Word {
        fn value(&self) -> &loom::sync::atomic::AtomicU32 {
            &self.0.as_ref().expect("a used word").0
        }
    }

    impl StepWord for Word {
        fn load(&self, order: Ordering) -> u32 {
            self.value().load(order)
        }

        fn store(&self, value: u32, order: Ordering) {
            self.value().store(value, order);
        }

        fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.value().fetch_add(value, order)
        }

        fn exchange(&self, from: u32, to: u32, order: Ordering) -> bool {
            self.value().compare_exchange(from, to, order, Ordering::Relaxed).is_ok()
        }

        fn fence(order: Ordering) {
            fence(order);
        }

        /// Sleeps without a timeout: a lost wake-up is a deadlock, which the checker reports.
        fn sleep_while(&self, value: u32, _: Duration) {
            let (word, sleepers, bell) = self.0.as_ref().expect("a used word");
            let sleeper = sleepers.lock().unwrap();
            if word.load(Ordering::Relaxed) == value {
                drop(bell.wait(sleeper).unwrap());
            }
        }

        fn wake(&self) {
            let (_, sleepers, bell) = self.0.as_ref().expect("a used word");
            drop(sleepers.lock().unwrap());
            bell.notify_all();
        }
    }

    struct Small(Vec<Word>);

    impl StepMemory for Small {
        type StepWord = Word;
        fn cells(&self) -> &[Word] {
            &self.0
        }
    }

    fn two_ranks() -> [Steps<Small>; 2] {
        let word = |i: usize| {
            let used = i >= LINE && [PROGRESS, ASLEEP].contains(&((i - LINE) % SLOT));
            let word = || (loom::sync::atomic::AtomicU32::new(0), Mutex::new(()), Condvar::new());
            Word(used.then(word))
        };
        let memory = Arc::new(Small((0..words_for(2)).map(word).collect()));
        [Steps::new(Arc::clone(&memory), 0), Steps::new(memory, 1)]
    }

    fn wait(steps: &Steps<Small>, rank: usize, step: u32) {
        while !steps.has_reached(rank, step) {
            steps.sleep(rank, step, Duration::MAX);
        }
    }

    /// A value of each rank, which its owner writes and the other rank reads, between two steps each.
    struct ModelRows([UnsafeCell<u32>; 2]);

    #[allow(unsafe_code, reason = "the checker verifies exclusive access")]
    // SAFETY: the checker reports a read during a write.
    unsafe impl Sync for ModelRows {}

    impl ModelRows {
        #[allow(unsafe_code, reason = "the checker hands out pointers")]
        fn write(&self, rank: usize, to: u32) {
            // SAFETY: the checker verifies exclusive access.
            self.0[rank].with_mut(|value| unsafe { *value = to });
        }

        #[allow(unsafe_code, reason = "the checker hands out pointers")]
        fn read(&self, rank: usize) -> u32 {
            // SAFETY: the checker verifies that no thread writes.
            self.0[rank].with(|value| unsafe { *value })
        }
    }

    fn run(own: usize, turns: u32, steps: &Steps<Small>, rows: &ModelRows) {
        for turn in 0..turns {
            rows.write(own, turn + 1);
            steps.publish(2 * turn + 1);
            wait(steps, 1 - own, 2 * turn + 1);
            assert_eq!(rows.read(1 - own), turn + 1);
            steps.publish(2 * turn + 2);
            wait(steps, 1 - own, 2 * turn + 2);
        }
    }

    fn check(turns: u32, switches: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = switches;
        model.check(move || {
            let [one, other] = two_ranks();
            let rows = Arc::new(ModelRows([UnsafeCell::new(0), UnsafeCell::new(0)]));
            let same = Arc::clone(&rows);
            let thread = thread::spawn(move || run(1, turns, &other, &same));
            run(0, turns, &one, &rows);
            thread.join().unwrap();
        });
    }

    #[test]
    fn wake_ups_and_writes_are_not_lost() {
        check(1, Some(2));
        check(2, Some(1));
    }
}
