//! Grace period: wait until programs have finished with earlier packets.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::Error;

/// Map of maps, whose update returns only when no program uses the old value (`maybe_wait_bpf_programs`).
#[derive(Debug)]
pub(super) struct GracePeriod {
    outer: MapHandle,
    inner: MapHandle,
}

impl GracePeriod {
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn new() -> Result<Self, Error> {
        let mut options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let failed = crate::Error::kernel("creating the table of a grace period");
        let inner = MapHandle::create(MapType::Array, Some("nothing"), 4, 4, 1, &options).map_err(&failed)?;
        options.inner_map_fd = inner.as_fd().as_raw_fd().cast_unsigned();
        let outer = MapHandle::create(MapType::ArrayOfMaps, Some("grace"), 4, 4, 1, &options).map_err(&failed)?;
        Ok(Self { outer, inner })
    }

    /// # Errors
    /// Errors of the kernel.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        let done = self.outer.update(&0_u32.to_ne_bytes(), &inner, MapFlags::ANY);
        Ok(done.map_err(crate::Error::kernel("waiting for packets in flight"))?)
    }
}
