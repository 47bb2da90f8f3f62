//! Steps by one thread, and under a model checker.

use super::*;

#[derive(Debug)]
struct Plain(Vec<AtomicU32>);

impl Cells for Plain {
    type Cell = AtomicU32;
    fn cells(&self) -> &[AtomicU32] {
        &self.0
    }
}

fn all(ranks: usize) -> Vec<Steps<Plain>> {
    let memory = Arc::new(Plain((0..words_for(ranks)).map(|_| AtomicU32::new(0)).collect()));
    (0..ranks).map(|rank| Steps::new(Arc::clone(&memory), rank)).collect()
}

#[test]
fn steps_count_around() {
    let [one, other] = all(2).try_into().unwrap();
    for step in [0, 1, i32::MAX as u32, u32::MAX, u32::MAX.wrapping_add(1), 7] {
        one.publish(step);
        assert!(other.reached(0, step) && other.reached(0, step.wrapping_sub(1)), "{step}");
        assert!(!other.reached(0, step.wrapping_add(1)), "{step}");
    }
    assert!(other.reached(1, 0) && !other.reached(1, 1));
}

#[test]
fn the_first_failure_stays() {
    let [one, other] = all(2).try_into().unwrap();
    assert_eq!(one.failure(), None);
    assert_eq!(one.fail(2, 1, How::Died), (1, How::Died));
    assert_eq!(other.fail(2, 0, How::Late), (1, How::Died));
    assert_eq!(other.failure(), Some((1, How::Died)));
    assert!(!one.has_left(1));
    other.leave();
    assert!(one.has_left(1) && !one.has_left(0));
}

#[test]
fn what_ranks_say_of_themselves_is_theirs() {
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
fn processors_are_counted_once() {
    let three = all(3);
    let may = [[0, 1, 1000], [0, 1, 0], [1, 1, 1]];
    for (steps, cpus) in three.iter().zip(may) {
        steps.set_cpus(|cpu| cpus.contains(&cpu));
    }
    assert!(three[0].cpus_suffice(3));
    three[0].set_cpus(|cpu| cpu == 0);
    assert!(!three[0].cpus_suffice(3));
}

/// All orders in which the steps of threads can fall, within what the memory model allows.
mod model {
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::fence;
    use loom::sync::{Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// A word that is used here, and what the kernel keeps for those who sleep on it; the checker's are not free.
    struct Word(Option<(loom::sync::atomic::AtomicU32, Mutex<()>, Condvar)>);

    impl Word {
        fn value(&self) -> &loom::sync::atomic::AtomicU32 {
            &self.0.as_ref().expect("a word that is used").0
        }
    }

    impl Cell for Word {
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

        /// For ever: a wake-up that is lost is a deadlock, which the checker reports.
        fn sleep_while(&self, value: u32, _: Duration) {
            let (word, sleepers, bell) = self.0.as_ref().expect("a word that is used");
            let sleeper = sleepers.lock().unwrap();
            if word.load(Ordering::Relaxed) == value {
                drop(bell.wait(sleeper).unwrap());
            }
        }

        fn wake(&self) {
            let (_, sleepers, bell) = self.0.as_ref().expect("a word that is used");
            drop(sleepers.lock().unwrap());
            bell.notify_all();
        }
    }

    struct Small(Vec<Word>);

    impl Cells for Small {
        type Cell = Word;
        fn cells(&self) -> &[Word] {
            &self.0
        }
    }

    fn two() -> [Steps<Small>; 2] {
        let word = |i: usize| {
            let used = i >= LINE && [PROGRESS, ASLEEP].contains(&((i - LINE) % SLOT));
            let word = || (loom::sync::atomic::AtomicU32::new(0), Mutex::new(()), Condvar::new());
            Word(used.then(word))
        };
        let memory = Arc::new(Small((0..words_for(2)).map(word).collect()));
        [Steps::new(Arc::clone(&memory), 0), Steps::new(memory, 1)]
    }

    fn wait(steps: &Steps<Small>, rank: usize, step: u32) {
        while !steps.reached(rank, step) {
            steps.sleep(rank, step, Duration::MAX);
        }
    }

    /// A value of each rank, which its owner writes and the other reads, between two steps each.
    struct Rows([UnsafeCell<u32>; 2]);

    #[allow(unsafe_code, reason = "the checker finds out whether this is so")]
    // SAFETY: nobody reads a value while somebody writes it, or the checker says so.
    unsafe impl Sync for Rows {}

    impl Rows {
        #[allow(unsafe_code, reason = "the checker hands out pointers")]
        fn write(&self, rank: usize, to: u32) {
            // SAFETY: the checker has found that nobody else has it.
            self.0[rank].with_mut(|value| unsafe { *value = to });
        }

        #[allow(unsafe_code, reason = "the checker hands out pointers")]
        fn read(&self, rank: usize) -> u32 {
            // SAFETY: the checker has found that nobody writes it.
            self.0[rank].with(|value| unsafe { *value })
        }
    }

    fn run(own: usize, turns: u32, steps: &Steps<Small>, rows: &Rows) {
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
            let [one, other] = two();
            let rows = Arc::new(Rows([UnsafeCell::new(0), UnsafeCell::new(0)]));
            let same = Arc::clone(&rows);
            let thread = thread::spawn(move || run(1, turns, &other, &same));
            run(0, turns, &one, &rows);
            thread.join().unwrap();
        });
    }

    #[test]
    fn no_wake_up_is_lost_and_what_was_written_is_seen() {
        check(1, Some(2));
        check(2, Some(1));
    }
}
