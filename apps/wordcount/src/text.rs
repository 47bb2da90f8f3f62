//! Input text: files, or generated from a seed with Zipf frequencies of words.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Number of different words in the generated text.
const VOCABULARY: usize = 20_000;

/// Content of all files in order; without any, a generated text of this many words.
pub(crate) fn read(files: &[PathBuf], words: usize) -> Result<String> {
    if files.is_empty() {
        return Ok(made(words));
    }
    let mut text = String::new();
    for file in files {
        let part = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        text.push_str(&String::from_utf8_lossy(&part));
        text.push('\n');
    }
    Ok(text)
}

fn made(words: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut roll = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut text = String::with_capacity(words * 8);
    for _ in 0..words {
        // Inverse of the harmonic distribution: rank r with probability about 1/r.
        let rank = (VOCABULARY as f64).powf(roll()) as usize;
        text.push_str(&word(rank));
        text.push(' ');
    }
    text
}

/// Word of a rank: syllables, fewer for frequent words.
fn word(mut rank: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "ze"];
    let mut word = String::new();
    loop {
        word.push_str(SYLLABLES[rank % SYLLABLES.len()]);
        rank /= SYLLABLES.len();
        if rank == 0 {
            return word;
        }
    }
}
