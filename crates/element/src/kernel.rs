//! XDP program in the kernel, beside the program in user space (`--xdp`).
//!
//! ```text
//! interface ─▶ XDP program ─▶ interface          applications without tokens
//!                  │  └─ processed ─▶ slow port ─▶ forwarded by user space: multicasts, clones, unknown next hops
//!                  └─ passed ───────▶ data port ─▶ user space: applications with tokens,
//!                                                  and fragmented frames, which user space runs through the program
//! ```
//!
//! Each application is processed in one place, which holds its registers. User space keeps the tables of all
//! applications and checks each change against them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use pathcall_driver::link::Link;
use pathcall_program::{
    ApplicationCounters, Counters, Endpoint, InstalledApplication, InstalledPool, PoolCounters, Size,
};

use crate::Error;

/// Parameters with which the program is loaded and attached.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug)]
pub(crate) struct AttachRequest<'a> {
    /// Interfaces to attach to.
    pub(crate) interfaces: &'a [String],
    /// Interfaces of these that have a root program.
    pub(crate) rooted: &'a [String],
    /// Address on which frames are received.
    pub(crate) data: SocketAddr,
    /// IP address that frames are sent to, where `data` does not name one.
    pub(crate) advertise: Option<std::net::IpAddr>,
    pub(crate) size: Size,
    /// Process frames in transit to an endpoint, too.
    pub(crate) inlined: bool,
}

/// Interface with the attached program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedInterface {
    /// Name of the interface.
    pub interface: String,
    /// True: attached in the driver. False: attached behind the driver (generic mode), where each packet already has a
    /// buffer.
    pub native: bool,
    /// The program processes frames in transit to an endpoint, too.
    pub inline: bool,
}

/// Result of a frame that the kernel's program processed.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug)]
pub(crate) enum KernelVerdict {
    /// Send the frame to this address.
    Forwarded(SocketAddr, Vec<u8>),
    /// User space forwards the frame.
    ViaSlowPath { slow: SlowPath, frame: Vec<u8> },
    /// The program dropped the frame.
    Dropped,
    /// The frame belongs to no application in the kernel.
    Passed,
}

/// Action that user space takes for a frame that the kernel's program has processed.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlowPath {
    /// Forward to the destination endpoint.
    Forward,
    /// Copy to the application's group.
    Multicast,
    /// Forward to the destination endpoint and, after a second pass, its clone to another server.
    Clone,
}

/// Element-wide counters, and by name the counters that only the kernel's program has.
pub(crate) type KernelCounters = (Counters, [(&'static str, u64); 4]);

/// Counters of each application, and the age of its last admitted frame.
pub(crate) type ByApplication = HashMap<u32, (ApplicationCounters, Option<Duration>)>;

/// Counters of each pool, and the age of its last admitted frame.
pub(crate) type ByPool = HashMap<u32, (PoolCounters, Option<Duration>)>;

/// Change that the kernel rejected.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KernelRejected {
    /// The kernel's program supports IPv4 only.
    #[error("endpoint {endpoint} is at {addr}: an element with --xdp forwards to IPv4 addresses only")]
    Family { endpoint: u32, addr: SocketAddr },
    /// Error of the loader.
    #[error("{0}")]
    Other(String),
}

/// Action for a frame that arrived on the slow port, from its source port.
#[cfg(feature = "xdp")]
pub(crate) fn slow_path(source: u16) -> SlowPath {
    match source {
        pathcall_xdp::SLOW_MULTICAST => SlowPath::Multicast,
        pathcall_xdp::SLOW_CLONE => SlowPath::Clone,
        _ => SlowPath::Forward,
    }
}

#[cfg(not(feature = "xdp"))]
pub(crate) fn slow_path(_: u16) -> SlowPath {
    SlowPath::Forward
}

/// Loads the program without an interface, for tests. Prints a note and returns `None` without the rights.
#[cfg(all(test, feature = "xdp"))]
pub(crate) fn start_for_test(data: SocketAddr, size: Size) -> Option<(Kernel, Link)> {
    let request = AttachRequest { interfaces: &[], rooted: &[], data, advertise: None, size, inlined: false };
    match Kernel::start(&request) {
        Err(Error::Xdp(pathcall_xdp::Error::Permission)) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: needs root");
            None
        }
        started => Some(started.expect("the program loads").expect("the kernel accepts the program")),
    }
}

#[cfg(feature = "xdp")]
pub(crate) use with_xdp::Kernel;
#[cfg(not(feature = "xdp"))]
pub(crate) use without_xdp::Kernel;

#[cfg(feature = "xdp")]
mod with_xdp {
    use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

    use pathcall_program::CloneSize;
    use pathcall_xdp::function::SwitchProgramRef;
    use pathcall_xdp::{AttachMode, Config, Packet};
    use rustix::time::{ClockId, clock_gettime};

    use super::{
        AttachRequest, AttachedInterface, ByApplication, ByPool, Duration, Endpoint, Error, InstalledApplication,
        InstalledPool, KernelCounters, KernelRejected, KernelVerdict, Link, NonZeroU16, SocketAddr, slow_path,
    };

    /// Applications in the kernel, and the port that frames come up by.
    #[derive(Debug)]
    pub(crate) struct Kernel {
        program: pathcall_xdp::KernelSwitch,
        /// Program for root programs; `None` once taken.
        named: Option<SwitchProgramRef>,
        attached: Vec<AttachedInterface>,
        element: SocketAddrV4,
        packet: Vec<u8>,
        buffer: Vec<u8>,
    }

    /// Time on the clock with which the program stamps frames.
    fn now() -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    }

    /// True if the kernel routes packets that arrive on this interface, also if the setting can't be read.
    fn forwards(interface: &str) -> bool {
        let setting = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"));
        setting.map_or(true, |setting| setting.trim() != "0")
    }

    impl From<pathcall_xdp::Error> for KernelRejected {
        fn from(error: pathcall_xdp::Error) -> Self {
            Self::Other(error.to_string())
        }
    }

    impl Kernel {
        /// Loads and attaches the program, and opens the link on which processed frames arrive. Logs a warning and
        /// returns `None` where the machine lacks what the program needs.
        pub(crate) fn start(request: &AttachRequest<'_>) -> Result<Option<(Self, Link)>, Error> {
            match Self::load(request) {
                Err(Error::Xdp(error)) if error.is_unavailable() => {
                    tracing::warn!(
                        "the XDP program cannot run on this machine: {error}; frames are processed in user space"
                    );
                    Ok(None)
                }
                loaded => loaded.map(Some),
            }
        }

        fn load(request: &AttachRequest<'_>) -> Result<(Self, Link), Error> {
            let ip = match (request.data.ip(), request.advertise) {
                (ip, None) | (_, Some(ip)) if !ip.is_unspecified() => ip,
                (ip, _) if !ip.is_unspecified() => ip,
                _ => return Err(Error::Unspecified { port: crate::Port::Data, addr: request.data }),
            };
            let IpAddr::V4(ip) = ip else { return Err(Error::XdpFamily { addr: ip }) };
            let up = SocketAddr::new(request.data.ip(), 0);
            let link = Link::bind(up).map_err(|source| Error::bind(crate::Port::Data, up, source))?;
            let (data_port, slow_port) = (request.data.port(), link.local_addr().port());
            let AttachRequest { size, inlined, .. } = *request;
            let clones = CloneSize::default();
            let config = Config { size, clones, data_port, slow_port, routed: true, inlined };
            let mut program = pathcall_xdp::KernelSwitch::load(&config)?;
            program.set_element_address(ip)?;
            program.set_last_number(crate::switch::first_call_number())?;
            let named = Some(SwitchProgramRef::of(&program, &config)?);
            let mut attached = Vec::new();
            for interface in request.interfaces {
                if request.rooted.contains(interface) {
                    program.connect(interface)?;
                    continue;
                }
                let native = program.attach(interface)? == AttachMode::Native;
                if !forwards(interface) {
                    tracing::warn!(
                        "{interface} does not forward: frames leave by user space, which is slower; \
                         `sysctl -w net.ipv4.conf.{interface}.forwarding=1` lets the kernel send them on"
                    );
                }
                attached.push(AttachedInterface { interface: interface.clone(), native, inline: inlined });
            }
            let element = SocketAddrV4::new(ip, data_port);
            Ok((Self { program, named, attached, element, packet: Vec::new(), buffer: Vec::new() }, link))
        }

        pub(crate) fn attached(&self) -> &[AttachedInterface] {
            &self.attached
        }

        pub(crate) fn take_program(&mut self) -> Option<SwitchProgramRef> {
            self.named.take()
        }

        pub(crate) fn has(&self, gaid: u32) -> bool {
            self.program.has(gaid)
        }

        pub(crate) fn install(&mut self, application: &InstalledApplication) -> Result<(), KernelRejected> {
            Ok(self.program.install(application)?)
        }

        pub(crate) fn install_pool(&mut self, pool: &InstalledPool) -> Result<(), KernelRejected> {
            Ok(self.program.install_pool(pool)?)
        }

        pub(crate) fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), KernelRejected> {
            Ok(self.program.set_switch_id(switch_id)?)
        }

        pub(crate) fn remove(&mut self, gaid: u32) -> Result<(), KernelRejected> {
            Ok(self.program.remove(gaid)?)
        }

        pub(crate) fn reset(&mut self, gaid: u32) -> Result<(), KernelRejected> {
            Ok(self.program.reset(gaid)?)
        }

        pub(crate) fn set_endpoint(&mut self, endpoint: &Endpoint, addr: SocketAddr) -> Result<(), KernelRejected> {
            let SocketAddr::V4(v4) = addr else {
                return Err(KernelRejected::Family { endpoint: endpoint.endpoint, addr });
            };
            Ok(self.program.set_endpoint(endpoint, v4)?)
        }

        pub(crate) fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), KernelRejected> {
            Ok(self.program.remove_endpoint(endpoint)?)
        }

        pub(crate) fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), KernelRejected> {
            Ok(self.program.set_group(gaid, endpoints)?)
        }

        pub(crate) fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<Vec<i32>, KernelRejected> {
            Ok(self.program.read_rows(gaid, row, count)?)
        }

        /// Runs a frame that bypassed the program through it: a fragmented frame, or one from an interface without the
        /// program.
        pub(crate) fn run(&mut self, frame: &[u8], congested: bool) -> Result<KernelVerdict, KernelRejected> {
            let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            Packet { from, to: self.element, congested }.emit(frame, &mut self.packet);
            Ok(match self.program.run(&self.packet, &mut self.buffer)? {
                pathcall_xdp::RunResult::Out(packet, frame) => KernelVerdict::Forwarded(packet.to.into(), frame),
                pathcall_xdp::RunResult::Slow(packet, frame) => {
                    KernelVerdict::ViaSlowPath { slow: slow_path(packet.from.port()), frame }
                }
                pathcall_xdp::RunResult::Passed => KernelVerdict::Passed,
                pathcall_xdp::RunResult::Dropped => KernelVerdict::Dropped,
            })
        }

        pub(crate) fn counters(&self) -> Result<KernelCounters, KernelRejected> {
            let element = self.program.counters()?;
            let own = [
                ("xdp_drop_checksum", element.drop_checksum),
                ("xdp_passed", element.passed),
                ("xdp_slow", element.slow),
                ("xdp_inline", element.passing),
            ];
            Ok((element.counters, own))
        }

        pub(crate) fn applications(&self) -> Result<ByApplication, KernelRejected> {
            let now = now();
            let all = self.program.applications()?.into_iter().map(|(application, last, counters)| {
                (application.gaid, (counters, last.map(|last| now.saturating_sub(last))))
            });
            Ok(all.collect())
        }

        pub(crate) fn pools(&self) -> Result<ByPool, KernelRejected> {
            let now = now();
            let all = self.program.pools()?.into_iter();
            Ok(all
                .map(|(gaid, last, counters)| (gaid, (counters, last.map(|last| now.saturating_sub(last)))))
                .collect())
        }
    }
}

#[cfg(not(feature = "xdp"))]
mod without_xdp {
    use super::{
        AttachRequest, AttachedInterface, ByApplication, ByPool, Endpoint, Error, InstalledApplication, InstalledPool,
        KernelCounters, KernelRejected, KernelVerdict, Link, NonZeroU16, SocketAddr,
    };

    /// Placeholder in builds without XDP.
    #[derive(Debug)]
    pub(crate) enum Kernel {}

    #[rustfmt::skip]
    impl Kernel {
        pub(crate) fn start(_: &AttachRequest<'_>) -> Result<Option<(Self, Link)>, Error> { Err(Error::NoXdp) }
        pub(crate) fn attached(&self) -> &[AttachedInterface] { match *self {} }
        pub(crate) fn has(&self, _: u32) -> bool { match *self {} }
        pub(crate) fn install(&mut self, _: &InstalledApplication) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn install_pool(&mut self, _: &InstalledPool) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn set_switch_id(&mut self, _: NonZeroU16) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn remove(&mut self, _: u32) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn reset(&mut self, _: u32) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn set_endpoint(&mut self, _: &Endpoint, _: SocketAddr) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn remove_endpoint(&mut self, _: u32) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn set_group(&mut self, _: u32, _: &[u32]) -> Result<(), KernelRejected> { match *self {} }
        pub(crate) fn read_rows(&self, _: u32, _: u32, _: u32) -> Result<Vec<i32>, KernelRejected> { match *self {} }
        pub(crate) fn run(&mut self, _: &[u8], _: bool) -> Result<KernelVerdict, KernelRejected> { match *self {} }
        pub(crate) fn counters(&self) -> Result<KernelCounters, KernelRejected> { match *self {} }
        pub(crate) fn pools(&self) -> Result<ByPool, KernelRejected> { match *self {} }
        pub(crate) fn applications(&self) -> Result<ByApplication, KernelRejected> {
            match *self {}
        }
    }
}
