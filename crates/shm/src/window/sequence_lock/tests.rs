//! Tests of the sequence lock: against a model, with a writer that ends at any instruction, with invalid memory, and in
//! all interleavings of two threads.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

const ONE: Holder = 1;
const OTHER: Holder = 2;

fn bytes_of<W: RingWord>(len: usize, word: impl Fn() -> W) -> LockedBytes<Box<[W]>> {
    LockedBytes::new((0..words_for(len)).map(|_| word()).collect(), len)
}

fn write<M: RingMemory>(memory: &LockedBytes<M>, by: Holder, at: usize, bytes: &[u8]) {
    memory.write(memory.try_lock(by, 7).expect("the lock is free"), at, bytes);
}

fn content<M: RingMemory>(memory: &LockedBytes<M>) -> Vec<u8> {
    let mut all = vec![0; memory.len()];
    assert!(memory.try_read(0, &mut all), "the lock is free");
    all
}

proptest! {
    #[test]
    fn bytes_equal_model(
        len in 1..50_usize,
        accesses in proptest::collection::vec((any::<bool>(), any::<usize>(), any::<usize>(), any::<u8>()), 1..40),
    ) {
        let (memory, mut model) = (bytes_of(len, || AtomicU64::new(0)), vec![0; len]);
        for (is_write, at, count, value) in accesses {
            let at = at % (len + 1);
            let count = count % (len - at + 1);
            if is_write {
                let bytes: Vec<u8> = (0..count).map(|i| value.wrapping_add(i as u8)).collect();
                write(&memory, ONE, at, &bytes);
                model[at..at + count].copy_from_slice(&bytes);
            }
            let mut got = vec![0; count];
            prop_assert!(memory.try_read(at, &mut got));
            prop_assert_eq!(&got, &model[at..at + count]);
            memory.read_locked(memory.try_lock(OTHER, 7).expect("free"), at, &mut got);
            prop_assert_eq!(&got, &model[at..at + count]);
            prop_assert_eq!(content(&memory), &model[..]);
        }
    }

    #[test]
    fn invalid_memory_is_never_accessed_outside(
        header in proptest::collection::vec(prop_oneof![any::<u64>(), 0..20_u64], HEADER_WORDS),
        journals_state in any::<bool>(),
    ) {
        let memory = bytes_of(20, || AtomicU64::new(0));
        for (word, value) in memory.memory.iter().zip(&header) {
            word.store(*value, Ordering::Relaxed);
        }
        if journals_state {
            memory.memory[JOURNAL_STATE].store(journal_state(header[STATE]), Ordering::Relaxed);
        }
        let holder = holder(header[STATE]);
        prop_assert_eq!(memory.try_read(3, &mut [0; 17]), holder == FREE);
        match memory.try_lock(OTHER, 7) {
            Ok(locked) => memory.write(locked, 1, &[5; 19]),
            Err(got) => {
                prop_assert_eq!(got, holder);
                prop_assert!(memory.undo(holder, OTHER));
            }
        }
        prop_assert!(memory.try_read(0, &mut [0; 20]));
    }
}

#[test]
fn held_lock_excludes_all_others() {
    let memory = bytes_of(9, || AtomicU64::new(0));
    let locked = memory.try_lock(ONE, 77).expect("free");
    assert_eq!(memory.try_lock(OTHER, 78).expect_err("held"), ONE);
    assert!(!memory.try_read(0, &mut [0]) && !memory.undo(OTHER, OTHER));
    assert_eq!(memory.process(), 77);
    memory.write(locked, 8, &[1]);
    assert!(!memory.undo(ONE, OTHER), "the write has ended");
    assert_eq!(content(&memory), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

thread_local! {
    /// Accesses to words until this thread ends, as a process that is killed.
    static LIFE: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Word of a process that may be killed before any access.
struct MortalWord(AtomicU64);

impl MortalWord {
    fn live(&self) -> &AtomicU64 {
        match LIFE.get() {
            0 => resume_unwind(Box::new(())),
            left => LIFE.set(left - 1),
        }
        &self.0
    }
}

impl RingWord for MortalWord {
    fn load(&self, order: Ordering) -> u64 {
        self.live().load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.live().store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.live().swap(value, order)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        RingWord::compare_exchange(self.live(), current, new)
    }

    fn fence(order: Ordering) {
        AtomicU64::fence(order);
    }
}

/// Does `work` with so many accesses; returns whether it has ended.
fn live(accesses: u32, work: impl FnOnce()) -> bool {
    LIFE.set(accesses);
    let ended = catch_unwind(AssertUnwindSafe(work)).is_ok();
    LIFE.set(u32::MAX);
    ended
}

#[test]
fn write_of_ended_process_is_undone_at_any_instruction() {
    let (old, mut new) = ([1; 30], [1; 30]);
    new[5..27].fill(2);
    // The first write of a memory, too.
    for earlier_writes in 0..2 {
        let mut accesses = 0;
        loop {
            let memory = bytes_of(30, || MortalWord(AtomicU64::new(u64::from_ne_bytes([1; 8]))));
            memory.memory[..HEADER_WORDS].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            (0..earlier_writes).for_each(|_| write(&memory, OTHER, 0, &old));
            let ended = live(accesses, || write(&memory, ONE, 5, &new[5..27]));
            // Nor does it matter where a process that undoes the write ends.
            let state = || holder(memory.memory[STATE].load(Ordering::Relaxed));
            let mut undoing = 0;
            while state() != FREE && !live(undoing, || assert!(memory.undo(state(), OTHER + ONE - state()))) {
                undoing += 1;
            }
            assert_eq!(content(&memory), if ended { new } else { old }, "after {accesses} accesses");
            write(&memory, OTHER, 0, &old);
            if ended {
                break;
            }
            accesses += 1;
        }
        assert!(accesses > 12, "{accesses} accesses");
    }
}

/// Model checks: all interleavings of two threads that the memory model allows.
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    /// Another thread reads twice while `change` changes both words: a read sees 16 equal bytes.
    ///
    /// The checker compares an access with the last one of its word only. So the thread that loads before it stores is
    /// the one that it runs first.
    fn read_during(change: fn(&LockedBytes<Box<[AtomicU64]>>)) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let memory = Arc::new(bytes_of(16, || AtomicU64::new(0)));
            let same = Arc::clone(&memory);
            let reading = thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let mut got = [0; 16];
                    if same.try_read(0, &mut got) {
                        assert!(got == [got[0]; 16] && got[0] >= last, "{got:?} after {last}");
                        last = got[0];
                    }
                }
            });
            change(&memory);
            reading.join().unwrap();
        });
    }

    #[test]
    fn read_sees_write_wholly_or_not_at_all() {
        read_during(|memory| {
            write(memory, ONE, 0, &[1; 16]);
        });
    }

    #[test]
    fn read_sees_no_part_of_undone_write() {
        read_during(|memory| {
            let Locked(state) = memory.try_lock(ONE, 7).expect("free");
            // A writer that ends after one of its two words.
            memory.word(JOURNAL_COUNT).store(2, Ordering::Relaxed);
            memory.word(JOURNAL_STATE).store(journal_state(state), Ordering::Release);
            <AtomicU64 as RingWord>::fence(Ordering::Release);
            memory.halves().0[0].store(u64::MAX, Ordering::Relaxed);
            assert!(memory.undo(ONE, OTHER));
        });
    }

    #[test]
    fn writes_exclude_each_other() {
        loom::model(|| {
            let memory = Arc::new(bytes_of(8, || AtomicU64::new(0)));
            let other = Arc::clone(&memory);
            let count = |memory: &LockedBytes<Box<[AtomicU64]>>, by| {
                let Ok(locked) = memory.try_lock(by, 7) else { return 0 };
                let mut bytes = [0; 8];
                memory.copy_out(0, &mut bytes);
                memory.write(locked, 0, &(u64::from_ne_bytes(bytes) + 1).to_ne_bytes());
                1
            };
            let counting = thread::spawn(move || count(&other, OTHER));
            let counted = count(&memory, ONE) + counting.join().unwrap();
            let mut bytes = [0; 8];
            assert!(memory.try_read(0, &mut bytes));
            assert_eq!(u64::from_ne_bytes(bytes), counted);
        });
    }
}
