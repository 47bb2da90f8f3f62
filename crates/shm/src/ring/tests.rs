//! The ring against a model, between threads, under a model checker, and with a hostile other side.

use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;

use super::*;

/// Longest frame that is read here, bytes.
const LONGEST: usize = 2048;

type Words = Box<[AtomicU64]>;

fn memory(capacity: usize) -> Arc<Words> {
    Arc::new((0..words_for(capacity)).map(|_| AtomicU64::new(0)).collect())
}

/// A producer and the consumer of its ring.
fn ring(capacity: usize) -> (Producer<Words>, Consumer<Words>, Arc<Words>) {
    let memory = memory(capacity);
    let (producer, _) = pair(Arc::clone(&memory), Side::Maker);
    let (_, consumer) = pair(Arc::clone(&memory), Side::Taker);
    (producer, consumer, memory)
}

/// A frame whose bytes tell its number.
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
fn the_two_rings_do_not_touch_each_other() {
    let memory = memory(64);
    let (mut to_taker, mut from_taker) = pair(Arc::clone(&memory), Side::Maker);
    let (mut to_maker, mut from_maker) = pair(memory, Side::Taker);
    for i in 0..100 {
        to_taker.push(&frame(i, 50)).unwrap();
        to_maker.push(&frame(i + 1, 60)).unwrap();
        assert!(!to_taker.publish() && !to_maker.publish());
        assert_eq!(pop(&mut from_maker), Some(frame(i, 50)));
        assert_eq!(pop(&mut from_taker), Some(frame(i + 1, 60)));
    }
}

#[test]
fn lengths_that_no_frame_has_are_refused() {
    let (mut producer, mut consumer, _) = ring(64);
    let longest = producer.longest();
    for len in [0, longest + 1] {
        assert_eq!(producer.push(&vec![1; len]), Err(Refused::Length { expected: longest, got: len }));
    }
    producer.push(&vec![1; longest]).unwrap();
    assert!(!producer.publish());
    assert_eq!(pop(&mut consumer), Some(vec![1; longest]));
}

#[test]
fn a_consumer_that_waits_is_woken_once() {
    let (mut producer, mut consumer, _) = ring(64);
    assert!(consumer.wait());
    assert!(!producer.publish(), "there is nothing to wake it for");
    producer.push(b"one").unwrap();
    assert!(producer.publish());
    producer.push(b"two").unwrap();
    assert!(!producer.publish(), "it was woken already");
    assert!(!consumer.wait(), "there are frames");
    consumer.look();
    producer.push(b"three").unwrap();
    assert!(!producer.publish(), "it looks by itself");
    assert_eq!((0..3).filter_map(|_| pop(&mut consumer)).count(), 3);
    assert!(consumer.wait());
}

#[test]
fn what_is_written_after_the_end_is_not_read() {
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
    let (_, mut other) = pair(Arc::clone(&memory), Side::Taker);
    memory[WRITTEN].store(65, Ordering::Relaxed);
    assert_eq!(other.close(), Err(Corrupt::Position { distance: 65, capacity: 64 }));
}

#[test]
fn half_a_ring_is_congestion() {
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
    fn it_is_a_bounded_queue(steps in prop::collection::vec((0_u8..4, 1_usize..=120), 1..400)) {
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
                        // What a consumer has not given back yet is at most an eighth of the ring and a frame.
                        let words = |frame: &Vec<u8>| 1 + frame.len().div_ceil(8);
                        let held: usize = pushed.iter().chain(&visible).map(words).sum();
                        prop_assert_eq!(refused, Refused::Full);
                        prop_assert!(held + 1 + len.div_ceil(8) + 8 > 64, "{held} words held, {len} bytes refused");
                    }
                },
                2 => {
                    prop_assert!(!producer.publish());
                    visible.append(&mut pushed);
                }
                _ => {
                    // It sees a publication when it has read all of the one before.
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

    /// Whatever a hostile side writes wherever, this one gets an error or some bytes, within its bounds.
    #[test]
    fn scribbles_do_no_harm(scribbles in prop::collection::vec((0_usize..words_for(64), prop_oneof![
        any::<u64>(), 0_u64..200, (0_u64..200).prop_map(|back| u64::MAX - back)
    ]), 1..200)) {
        let memory = memory(64);
        let (mut producer, mut consumer) = pair(Arc::clone(&memory), Side::Maker);
        let mut buffer = [0; 100];
        for (number, (place, value)) in scribbles.into_iter().enumerate() {
            memory[place].store(value, Ordering::Relaxed);
            // The consumer's own bound: it never gets more than a ring of words from one look.
            for _ in 0..=64 {
                match consumer.pop(&mut buffer) {
                    Ok(Some(len)) => prop_assert!((1..=buffer.len()).contains(&len)),
                    Ok(None) | Err(_) => break,
                }
            }
            let _ = (consumer.wait(), consumer.is_congested());
            let _ = producer.push(&frame(number, number % 120));
            let _ = producer.publish();
        }
    }
}

#[test]
fn each_lie_is_named() {
    let cases: [(usize, u64, Corrupt); 5] = [
        (WRITTEN, 65, Corrupt::Position { distance: 65, capacity: 64 }),
        (WRITTEN, u64::MAX, Corrupt::Position { distance: u64::MAX, capacity: 64 }),
        (HEAD, 0, Corrupt::Length { expected: 100, got: 0 }),
        (HEAD, 101, Corrupt::Length { expected: 100, got: 101 }),
        (HEAD, 24, Corrupt::Cut { expected: 4, got: 3 }),
    ];
    for (place, value, lie) in cases {
        let (mut producer, mut consumer, memory) = ring(64);
        producer.push(&[5; 16]).unwrap();
        assert!(!producer.publish());
        memory[place].store(value, Ordering::Relaxed);
        assert_eq!(consumer.pop(&mut [0; 100]), Err(lie));
    }
    // A consumer that says it has read what was not written, or less than before.
    for read in [53, u64::MAX, 1 << 40] {
        let (mut producer, _, memory) = ring(64);
        for _ in 0..4 {
            producer.push(&[5; 96]).unwrap();
        }
        assert!(!producer.publish());
        memory[READ].store(read, Ordering::Relaxed);
        assert!(matches!(producer.push(&[5; 96]), Err(Refused::Corrupt(Corrupt::Position { .. }))), "{read}");
    }
}

#[test]
fn consumer_that_has_read_what_is_not_published_lies() {
    let (mut producer, _, memory) = ring(64);
    for pushed in 1..=4 {
        producer.push(&[5; 96]).unwrap();
        if pushed <= 3 {
            assert!(!producer.publish());
        }
    }
    memory[READ].store(40, Ordering::Relaxed);
    let lie = Corrupt::Position { distance: 40, capacity: 64 };
    assert_eq!(producer.push(&[5; 96]), Err(Refused::Corrupt(lie)));
    memory[READ].store(39, Ordering::Relaxed);
    assert_eq!(producer.push(&[5; 96]), Ok(()), "all that is published may have been read");
}

#[test]
fn threads_pass_frames_in_order_and_none_sleeps_for_ever() {
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
                // A wake-up that was lost would leave it here.
                None if consumer.wait() => thread::park(),
                None => consumer.look(),
            }
        }
    });
    let mut sent = 0;
    while sent < FRAMES {
        match producer.push(&frame(sent, 1 + sent % 100)) {
            Ok(()) => sent += 1,
            Err(refused) => assert_eq!(refused, Refused::Full),
        }
        if sent % 7 != 0 || sent == FRAMES || producer.room().unwrap() < 20 {
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

/// All orders in which the steps of two threads can fall, within what the memory model allows.
mod model {
    use loom::sync::Notify;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    use super::*;

    /// One ring, no larger than it has to be: the model checker's words are not free.
    struct Small(Vec<AtomicU64>);

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }

        fn swap(&self, value: u64, order: Ordering) -> u64 {
            self.swap(value, order)
        }

        fn fence(order: Ordering) {
            fence(order);
        }
    }

    impl Memory for Small {
        type Word = AtomicU64;
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    fn small(capacity: usize) -> (Producer<Small>, Consumer<Small>) {
        let memory = Arc::new(Small((0..words_for(capacity)).map(|_| AtomicU64::new(0)).collect()));
        let (producer, _) = pair(Arc::clone(&memory), Side::Maker);
        let (_, consumer) = pair(memory, Side::Taker);
        (producer, consumer)
    }

    /// Passes frames to a consumer that sleeps when there are none; all orders with so many switches
    /// between the threads that neither asked for.
    fn pass(frames: u8, switches: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = switches;
        model.check(move || {
            let (mut producer, mut consumer) = small(8);
            let bell = loom::sync::Arc::new(Notify::new());
            let heard = loom::sync::Arc::clone(&bell);
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
                    // The checker reports a thread that nobody wakes as a deadlock.
                    None if consumer.wait() => heard.wait(),
                    None => consumer.look(),
                }
            }
            sender.join().unwrap();
        });
    }

    #[test]
    fn no_wake_up_is_lost_and_no_frame_is_torn() {
        pass(1, None);
        pass(2, Some(3));
    }

    #[test]
    fn room_is_used_again_only_when_it_was_read() {
        loom::model(|| {
            let (mut producer, mut consumer) = small(8);
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
