//! Sizes of the generated parts.

/// Sizes of the generated parts. Logarithms have base 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Largest number of entries of each mirrored table.
    pub entries: u32,
    /// Cells of the order guard, logarithm; at most 16.
    pub cells_log2: u16,
    /// Period of the guard in µs, logarithm; longer than any packet stays at a server.
    pub period_log2: u16,
    /// Columns of the sketch's two rows, logarithm; at most 16 (the paper has 1024 columns, §VII-D).
    pub sketch_log2: u16,
    /// Window in µs, logarithm.
    pub window_log2: u16,
    /// Cells of the record of a window's flows, logarithm; at most 16.
    pub flows_log2: u16,
    /// Cells of each way of a Bloom filter, logarithm; at most 16.
    pub filter_log2: u16,
    /// Buckets of a group, logarithm; at most 16.
    pub buckets_log2: u16,
    /// Number of recorded responses, logarithm; at most 16. A repeat that arrives after more responses than that is not
    /// recognised.
    pub repeats_log2: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            entries: 65_536,
            cells_log2: 16,
            period_log2: 16,
            sketch_log2: 10,
            window_log2: 20,
            flows_log2: 16,
            filter_log2: 16,
            buckets_log2: 8,
            repeats_log2: 14,
        }
    }
}
