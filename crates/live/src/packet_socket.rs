//! Packet socket (`AF_PACKET`) for frames of one EtherType, received, processed in place and sent in batches.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};

use crate::Error;
use crate::interface::Interface;

/// Most frames of a batch.
pub(crate) const BATCH: usize = 64;
/// Size of the socket's receive buffer, bytes.
const RECEIVE_BYTES: usize = 8 << 20;
/// Size of an Ethernet header with a VLAN tag, bytes.
const HEADER_BYTES: usize = 18;

/// Packet socket with a batch of frames.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: OwnedFd,
    /// Buffers of [`BATCH`] frames, `place` bytes each.
    frames: Vec<u8>,
    place: usize,
    /// Lengths of the frames in the batch; 0 for a frame that is not to be sent.
    lengths: Vec<usize>,
}

impl PacketSocket {
    /// Opens a socket for frames of this EtherType at the interface.
    ///
    /// # Errors
    /// [`Error::Permission`], or an error of the system.
    pub(crate) fn open(interface: &Interface, ether_type: u16) -> Result<Self, Error> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => Error::Permission,
            _ => Error::System { doing: "opening a packet socket", source: error },
        };
        // Without a protocol the socket receives nothing before `bind`.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None::<Protocol>);
        let socket = socket.map_err(|error| failed(error.into()))?;
        bind(&socket, interface.index, ether_type).map_err(failed)?;
        // More than the system's default limit is possible only with CAP_NET_ADMIN.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BYTES).map_err(|error| failed(error.into()))?;
        }
        let place = (interface.mtu + HEADER_BYTES).next_multiple_of(64);
        Ok(Self { socket, frames: vec![0; BATCH * place], place, lengths: Vec::with_capacity(BATCH) })
    }

    /// Receives waiting frames, and returns their number; the frames of the last batch are overwritten.
    ///
    /// # Errors
    /// Errors of the system, as when the interface is gone or down.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        self.lengths.clear();
        let mut parts = [EMPTY_PART; BATCH];
        for (part, place) in parts.iter_mut().zip(self.frames.chunks_exact_mut(self.place)) {
            *part = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
        }
        let mut messages = [EMPTY; BATCH];
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
        }
        let (socket, at) = (self.socket.as_raw_fd(), messages.as_mut_ptr());
        #[allow(unsafe_code, reason = "the call is the kernel's; each message names one place of `frames`")]
        // SAFETY: all pointers point into arrays that outlive the call, with the right lengths.
        let count = unsafe { libc::recvmmsg(socket, at, BATCH as u32, libc::MSG_DONTWAIT, null_mut()) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
        }
        let whole = |message: &libc::mmsghdr| message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let lengths = messages[..count as usize].iter();
        self.lengths.extend(lengths.map(|message| if whole(message) { message.msg_len as usize } else { 0 }));
        Ok(count as usize)
    }

    /// Frame of the batch; `None` for a frame that was longer than the interface's MTU.
    pub(crate) fn frame(&mut self, at: usize) -> Option<&mut [u8]> {
        let length = *self.lengths.get(at).filter(|length| **length > 0)?;
        self.frames.get_mut(at * self.place..)?.get_mut(..length)
    }

    /// Removes a frame from the batch, so that it is not sent.
    pub(crate) fn drop_frame(&mut self, at: usize) {
        if let Some(length) = self.lengths.get_mut(at) {
            *length = 0;
        }
    }

    /// Sends the frames of the batch; returns the number of frames that the system refused.
    pub(crate) fn send(&mut self) -> usize {
        let mut parts = [EMPTY_PART; BATCH];
        let mut count = 0;
        for (place, length) in self.frames.chunks_exact_mut(self.place).zip(&self.lengths).filter(|(_, l)| **l > 0) {
            parts[count] = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: *length };
            count += 1;
        }
        let mut messages = [EMPTY; BATCH];
        for (message, part) in messages.iter_mut().zip(&mut parts) {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
        }
        let (mut sent, mut lost) = (0, 0);
        while sent < count {
            let (socket, rest) = (self.socket.as_raw_fd(), &mut messages[sent..count]);
            #[allow(unsafe_code, reason = "the call is the kernel's; each message names one place of `frames`")]
            // SAFETY: all pointers point into arrays that outlive the call, with the right lengths.
            let done = unsafe { libc::sendmmsg(socket, rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) };
            // Nothing was sent: the system refused the first of the rest.
            if done <= 0 {
                lost += 1;
            }
            sent += done.max(1) as usize;
        }
        self.lengths.clear();
        lost
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const EMPTY_PART: libc::iovec = libc::iovec { iov_base: null_mut(), iov_len: 0 };
#[allow(unsafe_code, reason = "some systems pad the header, and it can't be written out then")]
// SAFETY: the struct has only integers and pointers, for which zeros are valid.
const EMPTY: libc::mmsghdr = unsafe { std::mem::zeroed() };

fn bind(socket: &OwnedFd, index: u32, ether_type: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ether_type.to_be(),
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
