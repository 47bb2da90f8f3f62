//! How large the parts around a function are.

/// How large the generated parts are. Logarithms are to the base 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Entries of each mirrored table at most.
    pub entries: u32,
    /// Cells of the order guard, logarithm; 16 at most.
    pub cells_log2: u16,
    /// Microseconds of a period of the guard, logarithm: longer than any packet is at a server.
    pub period_log2: u16,
    /// Columns of the sketch's two rows, logarithm; 16 at most (the paper: 1024 columns, §VII-D).
    pub sketch_log2: u16,
    /// Microseconds of a window, logarithm.
    pub window_log2: u16,
    /// Places of the record of a window's flows, logarithm; 16 at most.
    pub flows_log2: u16,
    /// Places of each of a Bloom filter's two ways, logarithm; 16 at most.
    pub filter_log2: u16,
    /// Buckets of a group, logarithm; 16 at most.
    pub buckets_log2: u16,
    /// Responses that are remembered, logarithm; 16 at most: one that comes again behind more than so many others is taken
    /// for another.
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
