//! Interfaces: their indices, and the attachment of programs.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{Link, ProgramMut, Xdp, XdpFlags};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::Error;

/// Attachment mode of an XDP program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMode {
    /// Native mode: in the driver.
    Native,
    /// Generic mode: behind the driver, where every packet has a socket buffer already.
    Generic,
}

/// Attaches a program to an interface, in native mode if the driver supports it, else in generic mode.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::Occupied`], or errors of the kernel.
pub(crate) fn attach_to(program: &ProgramMut<'_>, interface: &str) -> Result<(Link, AttachMode), Error> {
    let ifindex = index_of(interface)?;
    let query = |doing| Xdp::new(program.as_fd()).query(ifindex, XdpFlags::NONE).map_err(Error::kernel(doing));
    let before = query("reading the XDP program of the interface")?;
    if before.prog_id != 0 {
        return Err(Error::Occupied { interface: interface.to_owned(), id: before.prog_id });
    }
    let link = program.attach_xdp(ifindex).map_err(Error::kernel("attaching the XDP program"))?;
    /// `XDP_ATTACHED_DRV`.
    const IN_DRIVER: u8 = 1;
    let native = query("reading the attachment mode")?.attach_mode == IN_DRIVER;
    Ok((link, if native { AttachMode::Native } else { AttachMode::Generic }))
}

/// Index of an interface.
///
/// # Errors
/// [`Error::NoInterface`], or errors of the system.
pub(crate) fn index_of(interface: &str) -> Result<i32, Error> {
    let system = |source: rustix::io::Errno| Error::System { doing: "looking up an interface", source: source.into() };
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(system)?;
    match netdevice::name_to_index(&any, interface) {
        Ok(index) => Ok(index as i32),
        Err(error) if io::Error::from(error).kind() == io::ErrorKind::PermissionDenied => Err(Error::Permission),
        Err(_) => Err(Error::NoInterface(interface.to_owned())),
    }
}
