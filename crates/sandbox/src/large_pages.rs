//! Large pages for memory with random accesses, which cause many TLB misses with small pages.

/// Asks for large pages (`MADV_HUGEPAGE`) for the allocation of `memory`. Only pages that are not written yet become
/// large, so call this before filling it. No effect if the kernel has none.
pub fn large_pages<T>(memory: &mut Vec<T>) {
    const SMALL: usize = 4096;
    let (from, bytes) = (memory.as_mut_ptr() as usize, memory.capacity() * size_of::<T>());
    // Whole pages only, as the rest of the outer pages belongs to other data.
    let (first, end) = (from.next_multiple_of(SMALL), (from + bytes) / SMALL * SMALL);
    if first < end {
        #[allow(unsafe_code, reason = "advice about pages: it changes how they are mapped, not what is in them")]
        // SAFETY: MADV_HUGEPAGE changes neither contents nor access rights of a mapping.
        let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pages_keep_contents() {
        for capacity in [0, 1, 4096, 1 << 20] {
            let mut memory = Vec::with_capacity(capacity);
            large_pages(&mut memory);
            memory.extend(0..capacity as u32);
            assert!(memory.iter().enumerate().all(|(i, value)| *value == i as u32));
        }
    }
}
