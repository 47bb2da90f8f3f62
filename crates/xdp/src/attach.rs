//! Interfaces: their numbers, and programs at them.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{Link, ProgramMut, Xdp, XdpFlags};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::Error;

/// How the program is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// Behind it, where every packet is in a buffer of its own already.
    Generic,
}

/// Attaches a program to an interface, in its driver if that can, otherwise behind it.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::Occupied`], or what the kernel says.
pub(crate) fn attach_to(program: &ProgramMut<'_>, interface: &str) -> Result<(Link, Mode), Error> {
    let ifindex = index_of(interface)?;
    let query = |doing| Xdp::new(program.as_fd()).query(ifindex, XdpFlags::NONE).map_err(Error::kernel(doing));
    let before = query("asking what the interface carries")?;
    if before.prog_id != 0 {
        return Err(Error::Occupied { interface: interface.to_owned(), id: before.prog_id });
    }
    let link = program.attach_xdp(ifindex).map_err(Error::kernel("attaching the XDP program"))?;
    /// `XDP_ATTACHED_DRV`.
    const IN_DRIVER: u8 = 1;
    let native = query("asking how the program is attached")?.attach_mode == IN_DRIVER;
    Ok((link, if native { Mode::Native } else { Mode::Generic }))
}

/// The kernel's number of an interface.
///
/// # Errors
/// [`Error::NoInterface`], or what the system says.
pub(crate) fn index_of(interface: &str) -> Result<i32, Error> {
    let system = |source: rustix::io::Errno| Error::System { doing: "asking for an interface", source: source.into() };
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(system)?;
    match netdevice::name_to_index(&any, interface) {
        Ok(index) => Ok(index as i32),
        Err(error) if io::Error::from(error).kind() == io::ErrorKind::PermissionDenied => Err(Error::Permission),
        Err(_) => Err(Error::NoInterface(interface.to_owned())),
    }
}
