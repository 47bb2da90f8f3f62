//! Waits until programs are done with packets that came before.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};

use super::Error;

/// A table of tables: whoever changes one returns when no program uses what it held (`maybe_wait_bpf_programs`).
#[derive(Debug)]
pub(super) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    /// # Errors
    /// What the kernel says.
    pub(super) fn new() -> Result<Self, Error> {
        let mut options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let failed = crate::Error::kernel("making a table to wait by");
        let inner = MapHandle::create(MapType::Array, Some("nothing"), 4, 4, 1, &options).map_err(&failed)?;
        options.inner_map_fd = inner.as_fd().as_raw_fd().cast_unsigned();
        let outer = MapHandle::create(MapType::ArrayOfMaps, Some("grace"), 4, 4, 1, &options).map_err(&failed)?;
        Ok(Self { outer, inner })
    }

    /// # Errors
    /// What the kernel says.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        let done = self.outer.update(&0_u32.to_ne_bytes(), &inner, MapFlags::ANY);
        Ok(done.map_err(crate::Error::kernel("waiting for packets that are under way"))?)
    }
}
