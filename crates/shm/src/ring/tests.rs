//! Tests of the ring against a model, between threads, under a model checker, and with a hostile other side.

use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;

use super::*;

/// Longest frame that the tests read, bytes.
const LONGEST: usize = 2048;

type Words = Box<[AtomicU64]>;

fn memory(capacity: usize) -> Arc<Words> {
    Arc::new((0..words_for(capacity)).map(|_| AtomicU64::new(0)).collect())
}

/// Producer and consumer of one ring, and its memory.
fn ring(capacity: usize) -> (Producer<Words>, Consumer<Words>, Arc<Words>) {
    let memory = memory(capacity);
    let (producer, _) = ring_pair(Arc::clone(&memory), RingSide::Creator);
    let (_, consumer) = ring_pair(Arc::clone(&memory), RingSide::Receiver);
    (producer, consumer, memory)
}

/// Frame with bytes that depend on its number.
fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(167) ^ i) as u8).collect()
}

fn pop(consumer: &mut Consumer<Words>) -> Option<Vec<u8>> {
    let mut frame = vec![0; LONGEST];
    let len = consumer.pop(&mut frame).unwrap()?;
    frame.truncate(len);
    Some(frame)
}

#[test]
fn two_rings_do_not_overlap() {
    let memory = memory(64);
    let (mut to_receiver, mut from_receiver) = ring_pair(Arc::clone(&memory), RingSide::Creator);
    let (mut to_creator, mut from_creator) = ring_pair(memory, RingSide::Receiver);
    for i in 0..100 {
        to_receiver.push(&frame(i, 50)).unwrap();
        to_creator.push(&frame(i + 1, 60)).unwrap();
        assert!(!to_receiver.publish() && !to_creator.publish());
        assert_eq!(pop(&mut from_creator), Some(frame(i, 50)));
        assert_eq!(pop(&mut from_receiver), Some(frame(i + 1, 60)));
    }
}

#[test]
fn invalid_frame_lengths_are_refused() {
    let (mut producer, mut consumer, _) = ring(64);
    let longest = producer.longest();
    for len in [0, longest + 1] {
        assert_eq!(producer.push(&vec![1; len]), Err(PushError::Length { expected: longest, got: len }));
    }
    producer.push(&vec![1; longest]).unwrap();
    assert!(!producer.publish());
    assert_eq!(pop(&mut consumer), Some(vec![1; longest]));
}

#[test]
fn waiting_consumer_is_woken_once() {
    let (mut producer, mut consumer, _) = ring(64);
    assert!(consumer.arm_wakeup());
    assert!(!producer.publish(), "no frame was written");
    producer.push(b"one").unwrap();
    assert!(producer.publish());
    producer.push(b"two").unwrap();
    assert!(!producer.publish(), "the consumer was woken already");
    assert!(!consumer.arm_wakeup(), "there are frames");
    consumer.disarm_wakeup();
    producer.push(b"three").unwrap();
    assert!(!producer.publish(), "the consumer polls");
    assert_eq!((0..3).filter_map(|_| pop(&mut consumer)).count(), 3);
    assert!(consumer.arm_wakeup());
}

#[test]
fn frames_after_close_are_not_read() {
    let (mut producer, mut consumer, memory) = ring(64);
    for frame in [b"one", b"two"] {
        producer.push(frame).unwrap();
        assert!(!producer.publish());
    }
    consumer.close().unwrap();
    producer.push(b"three").unwrap();
    assert!(!producer.publish());
    assert_eq!(
        [pop(&mut consumer), pop(&mut consumer), pop(&mut consumer)],
        [Some(b"one".to_vec()), Some(b"two".to_vec()), None]
    );
    let (_, mut other) = ring_pair(Arc::clone(&memory), RingSide::Receiver);
    memory[WRITTEN].store(65, Ordering::Relaxed);
    assert_eq!(other.close(), Err(RingCorruption::Position { distance: 65, capacity: 64 }));
}

#[test]
fn half_full_ring_is_congested() {
    let (mut producer, mut consumer, _) = ring(64);
    for pushed in 1..=15 {
        producer.push(&[7; 24]).unwrap();
        assert!(!producer.publish());
        if pushed == 8 {
            assert!(pop(&mut consumer).is_some());
            assert!(!consumer.is_congested(), "seven wait");
        }
    }
    while pop(&mut consumer).is_some() {}
    for _ in 0..9 {
        producer.push(&[7; 24]).unwrap();
    }
    assert!(!producer.publish());
    assert!(pop(&mut consumer).is_some());
    assert!(consumer.is_congested(), "eight of sixteen wait");
}

proptest! {
    #[test]
    fn ring_is_a_bounded_queue(steps in prop::collection::vec((0_u8..4, 1_usize..=120), 1..400)) {
        let (mut producer, mut consumer, _) = ring(64);
        let (mut pushed, mut visible, mut sent) = (VecDeque::new(), VecDeque::new(), 0);
        for (step, len) in steps {
            match step {
                0 | 1 => match producer.push(&frame(sent, len)) {
                    Ok(()) => {
                        pushed.push_back(frame(sent, len));
                        sent += 1;
                    }
                    Err(refused) => {
                        // The consumer holds back at most an eighth of the ring and a frame.
                        let words = |frame: &Vec<u8>| 1 + frame.len().div_ceil(8);
                        let held: usize = pushed.iter().chain(&visible).map(words).sum();
                        prop_assert_eq!(refused, PushError::Full);
                        prop_assert!(held + 1 + len.div_ceil(8) + 8 > 64, "{held} words held, {len} bytes refused");
                    }
                },
                2 => {
                    prop_assert!(!producer.publish());
                    visible.append(&mut pushed);
                }
                _ => {
                    // A publication becomes visible when all earlier frames are read.
                    prop_assert_eq!(pop(&mut consumer), visible.pop_front());
                }
            }
        }
        prop_assert!(!producer.publish());
        visible.append(&mut pushed);
        while let Some(frame) = visible.pop_front() {
            prop_assert_eq!(pop(&mut consumer), Some(frame));
        }
        prop_assert_eq!(pop(&mut consumer), None);
    }

    /// With arbitrary data written by a hostile side, every call returns an error or some bytes, within its limits.
    #[test]
    fn arbitrary_writes_are_contained(scribbles in prop::collection::vec((0_usize..words_for(64), prop_oneof![
        any::<u64>(), 0_u64..200, (0_u64..200).prop_map(|back| u64::MAX - back)
    ]), 1..200)) {
        let memory = memory(64);
        let (mut producer, mut consumer) = ring_pair(Arc::clone(&memory), RingSide::Creator);
        let mut buffer = [0; 100];
        for (number, (place, value)) in scribbles.into_iter().enumerate() {
            memory[place].store(value, Ordering::Relaxed);
            // The consumer reads at most one ring of words per position of the producer.
            for _ in 0..=64 {
                match consumer.pop(&mut buffer) {
                    Ok(Some(len)) => prop_assert!((1..=buffer.len()).contains(&len)),
                    Ok(None) | Err(_) => break,
                }
            }
            let _ = (consumer.arm_wakeup(), consumer.is_congested());
            let _ = producer.push(&frame(number, number % 120));
            let _ = producer.publish();
        }
    }
}

#[test]
fn each_corruption_is_reported() {
    let cases: [(usize, u64, RingCorruption); 5] = [
        (WRITTEN, 65, RingCorruption::Position { distance: 65, capacity: 64 }),
        (WRITTEN, u64::MAX, RingCorruption::Position { distance: u64::MAX, capacity: 64 }),
        (HEADER_WORDS, 0, RingCorruption::Length { expected: 100, got: 0 }),
        (HEADER_WORDS, 101, RingCorruption::Length { expected: 100, got: 101 }),
        (HEADER_WORDS, 24, RingCorruption::Cut { expected: 4, got: 3 }),
    ];
    for (place, value, corruption) in cases {
        let (mut producer, mut consumer, memory) = ring(64);
        producer.push(&[5; 16]).unwrap();
        assert!(!producer.publish());
        memory[place].store(value, Ordering::Relaxed);
        assert_eq!(consumer.pop(&mut [0; 100]), Err(corruption));
    }
    // A consumer position beyond the written words, or before the last one.
    for read in [53, u64::MAX, 1 << 40] {
        let (mut producer, _, memory) = ring(64);
        for _ in 0..4 {
            producer.push(&[5; 96]).unwrap();
        }
        assert!(!producer.publish());
        memory[READ].store(read, Ordering::Relaxed);
        assert!(matches!(producer.push(&[5; 96]), Err(PushError::Corrupt(RingCorruption::Position { .. }))), "{read}");
    }
}

#[test]
fn reading_unpublished_words_is_corruption() {
    let (mut producer, _, memory) = ring(64);
    for pushed in 1..=4 {
        producer.push(&[5; 96]).unwrap();
        if pushed <= 3 {
            assert!(!producer.publish());
        }
    }
    memory[READ].store(40, Ordering::Relaxed);
    let corruption = RingCorruption::Position { distance: 40, capacity: 64 };
    assert_eq!(producer.push(&[5; 96]), Err(PushError::Corrupt(corruption)));
    memory[READ].store(39, Ordering::Relaxed);
    assert_eq!(producer.push(&[5; 96]), Ok(()), "all published words may have been read");
}

#[test]
fn threads_pass_frames_in_order_without_lost_wake_ups() {
    const FRAMES: usize = if cfg!(miri) { 300 } else { 200_000 };
    let (mut producer, mut consumer, _) = ring(if cfg!(miri) { 64 } else { 1024 });
    let receiver = thread::spawn(move || {
        let mut next = 0;
        while next < FRAMES {
            match pop(&mut consumer) {
                Some(got) => {
                    assert_eq!(got, frame(next, 1 + next % 100));
                    next += 1;
                }
                // A lost wake-up would park the thread for ever.
                None if consumer.arm_wakeup() => thread::park(),
                None => consumer.disarm_wakeup(),
            }
        }
    });
    let mut sent = 0;
    while sent < FRAMES {
        match producer.push(&frame(sent, 1 + sent % 100)) {
            Ok(()) => sent += 1,
            Err(refused) => assert_eq!(refused, PushError::Full),
        }
        if sent % 7 != 0 || sent == FRAMES || producer.free_words().unwrap() < 20 {
            if producer.publish() {
                receiver.thread().unpark();
            } else {
                thread::yield_now();
            }
        }
    }
    if producer.publish() {
        receiver.thread().unpark();
    }
    receiver.join().unwrap();
}

/// Model checks: all interleavings of two threads that the memory model allows.
mod model {
    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    use super::*;

    /// Memory of one small ring: words of the model checker are expensive.
    struct Small(Vec<AtomicU64>);

    impl RingWord for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }

        fn swap(&self, value: u64, order: Ordering) -> u64 {
            self.swap(value, order)
        }

        fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
            self.compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed)
        }

        fn fence(order: Ordering) {
            fence(order);
        }
    }

    impl RingMemory for Small {
        type Word = AtomicU64;
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    fn small_ring(capacity: usize) -> (Producer<Small>, Consumer<Small>) {
        let memory = Arc::new(Small((0..words_for(capacity)).map(|_| AtomicU64::new(0)).collect()));
        let (producer, _) = ring_pair(Arc::clone(&memory), RingSide::Creator);
        let (_, consumer) = ring_pair(memory, RingSide::Receiver);
        (producer, consumer)
    }

    /// Passes frames to a consumer that sleeps when there are none, in all interleavings with at most `switches`
    /// preemptions.
    fn pass_frames(frames: u8, switches: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = switches;
        model.check(move || {
            let (mut producer, mut consumer) = small_ring(8);
            let bell = loom::sync::Arc::new(Notify::new());
            let waiting_bell = loom::sync::Arc::clone(&bell);
            let sender = thread::spawn(move || {
                for number in 1..=frames {
                    producer.push(&[number; 8]).unwrap();
                    if producer.publish() {
                        bell.notify();
                    }
                }
            });
            let mut buffer = [0; 8];
            let mut next = 1;
            while next <= frames {
                match consumer.pop(&mut buffer).unwrap() {
                    Some(len) => {
                        assert_eq!((len, buffer), (8, [next; 8]));
                        next += 1;
                    }
                    // The checker reports a thread that is never woken as a deadlock.
                    None if consumer.arm_wakeup() => waiting_bell.wait(),
                    None => consumer.disarm_wakeup(),
                }
            }
            sender.join().unwrap();
        });
    }

    #[test]
    fn wake_ups_and_frames_are_not_lost() {
        pass_frames(1, None);
        pass_frames(2, Some(3));
    }

    #[test]
    fn space_is_reused_only_after_reading() {
        loom::model(|| {
            let (mut producer, mut consumer) = small_ring(8);
            let sender = thread::spawn(move || {
                let mut sent = 0;
                for number in 1..=5_u8 {
                    if producer.push(&[number; 8]).is_ok() {
                        sent += 1;
                    }
                    let _ = producer.publish();
                }
                sent
            });
            let (mut buffer, mut last, mut got) = ([0; 8], 0, 0);
            for _ in 0..2 {
                if consumer.pop(&mut buffer).unwrap().is_some() {
                    assert!(buffer[0] > last && buffer == [buffer[0]; 8], "{buffer:?} after {last}");
                    (last, got) = (buffer[0], got + 1);
                }
            }
            let sent = sender.join().unwrap();
            while consumer.pop(&mut buffer).unwrap().is_some() {
                assert!(buffer[0] > last && buffer == [buffer[0]; 8], "{buffer:?} after {last}");
                (last, got) = (buffer[0], got + 1);
            }
            assert_eq!(got, sent);
        });
    }
}
