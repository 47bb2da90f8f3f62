//! Large pages behind memory that is read here and there: with small ones each read takes two, the page's place first.

/// Asks for large pages (`MADV_HUGEPAGE`) behind the room that `memory` has allotted. Only what is not written yet gets
/// them, so ask before filling it. Where the kernel has none, nothing happens.
pub fn large_pages<T>(memory: &mut Vec<T>) {
    const SMALL: usize = 4096;
    let (from, bytes) = (memory.as_mut_ptr() as usize, memory.capacity() * size_of::<T>());
    // Whole pages within: what lies beside is somebody else's.
    let (first, end) = (from.next_multiple_of(SMALL), (from + bytes) / SMALL * SMALL);
    if first < end {
        #[allow(unsafe_code, reason = "advice about pages: it changes how they are mapped, not what is in them")]
        // SAFETY: MADV_HUGEPAGE leaves the contents and the rights of any mapping as they are.
        let _ = unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_there() {
        for room in [0, 1, 4096, 1 << 20] {
            let mut memory = Vec::with_capacity(room);
            large_pages(&mut memory);
            memory.extend(0..room as u32);
            assert!(memory.iter().enumerate().all(|(i, value)| *value == i as u32));
        }
    }
}
