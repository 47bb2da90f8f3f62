//! A ring in memory that a hostile peer writes, step by step: no panic, nothing outside of its bounds; and
//! the messages by which links agree on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_shm::ring::words_for;
use pathcall_shm::{Side, pair};
use pathcall_wire::link::Link;

const WORDS: usize = words_for(64);

/// Takes one input.
pub fn run(data: &[u8]) {
    if let Ok(message) = Link::new_checked(data) {
        let seen = message.seen();
        assert_eq!((message.repr().bytes().as_slice(), seen.port()), (data, message.port()));
    }
    let memory: Arc<Box<[AtomicU64]>> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect());
    let (mut producer, mut consumer) = pair(Arc::clone(&memory), Side::Maker);
    let mut buffer = [0; 200];
    for step in data.chunks_exact(10) {
        let (what, value) = step.split_at(2);
        let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
        memory[usize::from(what[0]) % WORDS].store(value, Ordering::Relaxed);
        match what[1] % 4 {
            // What one look finds is bounded by the ring, whoever writes meanwhile.
            0 => {
                let mut frames = 0;
                while let Ok(Some(len)) = consumer.pop(&mut buffer) {
                    assert!((1..=buffer.len()).contains(&len));
                    frames += 1;
                    assert!(frames <= WORDS);
                }
            }
            1 => {
                let _ = producer.push(&buffer[..value as usize % buffer.len()]);
            }
            2 => {
                let _ = (producer.publish(), consumer.wait(), consumer.is_congested());
            }
            _ => {
                let _ = consumer.close();
            }
        }
    }
}
