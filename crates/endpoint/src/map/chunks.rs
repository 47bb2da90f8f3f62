//! Numbering of the chunks of sums: row and round of a chunk.
//!
//! All sums of an application form one sequence of chunks. With R rows, chunk c uses row c mod R in round c / R + 1
//! (NetRPC §5.2.2: circular buffers). The number of rows is constant in an epoch: when the memory of an application
//! changes, the chunks keep their numbers, and get other rows.

/// Numbering with a number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkNumbering {
    rows: u32,
}

impl ChunkNumbering {
    pub(super) fn new(rows: u32) -> Self {
        Self { rows: rows.max(1) }
    }

    pub(super) fn rows(self) -> u32 {
        self.rows
    }

    /// Row and round of a chunk.
    pub(super) fn position(self, chunk: u64) -> (u32, u32) {
        let rows = u64::from(self.rows);
        // The last round has no next one, so its frames have no effect.
        ((chunk % rows) as u32, u32::try_from(chunk / rows + 1).unwrap_or(u32::MAX))
    }

    /// Chunk of a row and round, if there is one.
    pub(super) fn chunk(self, row: u32, round: u32) -> Option<u64> {
        (row < self.rows && round > 0).then(|| u64::from(round - 1) * u64::from(self.rows) + u64::from(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_has_row_and_round_of_its_numbering() {
        let (four, three) = (ChunkNumbering::new(4), ChunkNumbering::new(3));
        assert_eq!((four.position(10), three.position(10)), ((2, 3), (1, 4)));
        assert_eq!((four.chunk(2, 3), three.chunk(1, 4)), (Some(10), Some(10)));
        for (row, round) in [(4, 1), (0, 0)] {
            assert_eq!(four.chunk(row, round), None);
        }
        assert_eq!(ChunkNumbering::new(0).position(5), (0, 6), "there is always a row");
        assert_eq!(four.position(u64::MAX).1, u32::MAX);
    }
}
