//! Fuzz target of shared-memory rings. A hostile peer changes the ring's memory between operations. Checks: no panic,
//! no access beyond the ring. The target also parses the input as a link message, by which two links agree on a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pathcall_shm::ring::words_for;
use pathcall_shm::{RingSide, ring_pair};
use pathcall_wire::link::Link;

const WORDS: usize = words_for(64);

/// Tests one input.
pub fn run(data: &[u8]) {
    if let Ok(message) = Link::new_checked(data) {
        let seen = message.observed_address();
        assert_eq!((message.repr().bytes().as_slice(), seen.port()), (data, message.port()));
    }
    let memory: Arc<Box<[AtomicU64]>> = Arc::new((0..WORDS).map(|_| AtomicU64::new(0)).collect());
    let (mut producer, mut consumer) = ring_pair(Arc::clone(&memory), RingSide::Creator);
    let mut buffer = [0; 200];
    for step in data.chunks_exact(10) {
        let (operation, value) = step.split_at(2);
        let value = u64::from_le_bytes(value.try_into().expect("eight bytes"));
        memory[usize::from(operation[0]) % WORDS].store(value, Ordering::Relaxed);
        match operation[1] % 4 {
            // The number of frames per call is bounded by the ring, whatever the peer writes in between.
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
                let _ = (producer.publish(), consumer.arm_wakeup(), consumer.is_congested());
            }
            _ => {
                let _ = consumer.close();
            }
        }
    }
}
