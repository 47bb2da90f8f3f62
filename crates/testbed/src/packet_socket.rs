//! Packet socket (`AF_PACKET`) of one interface, as a file: a read receives a frame, a write sends one.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};

/// Size of the receive buffer, bytes.
const RECEIVE_BYTES: usize = 8 << 20;

/// Opens a socket for all frames that arrive at this interface of the thread's namespace. Reads do not block.
///
/// # Errors
/// Errors of the system: missing rights, or no such interface.
pub(crate) fn open(interface: &str) -> io::Result<File> {
    // Without a protocol the socket receives nothing before `bind`.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None::<Protocol>)?;
    // More than the system's limit is possible for root only; where root is that of a user namespace, from Linux 5.16.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES)?;
    }
    bind(&socket, name_to_index(&socket, interface)?)?;
    Ok(File::from(socket))
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    // SAFETY: the address is complete, and its length is given.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
