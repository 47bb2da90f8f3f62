//! The program in the kernel, beside the one in user space (`--xdp`).
//!
//! ```text
//! interface ─▶ XDP program ─▶ interface          applications without tokens
//!                  │  └─ worked on ─▶ slow port ─▶ sent on from here: copies, and where no way is known
//!                  └─ passed ───────▶ data port ─▶ user space: applications with tokens,
//!                                                  and frames that came in fragments: run there
//! ```
//!
//! An application is worked on in one place: its registers are there. User space keeps the tables of
//! all, which say what may be changed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use pathcall_endpoint::driver::link::Link;
use pathcall_program::{Application, ApplicationCounters, Counters, Endpoint, Pool, PoolCounters, Size};

use crate::Error;

/// What the element is to attach.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Interfaces.
    pub(crate) interfaces: &'a [String],
    /// Those of them that a root program is attached to.
    pub(crate) rooted: &'a [String],
    /// Where frames are received.
    pub(crate) data: SocketAddr,
    /// The IP address that frames are sent to, where that is not said by `data`.
    pub(crate) advertise: Option<std::net::IpAddr>,
    pub(crate) size: Size,
    /// Frames that pass by are worked on, too.
    pub(crate) inlined: bool,
}

/// How the program is attached to an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// Its name.
    pub interface: String,
    /// In the driver, or behind it, where every packet is in a buffer of its own already.
    pub native: bool,
    /// Frames that pass by are worked on, too.
    pub inline: bool,
}

/// Where a frame that was run in the kernel goes.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug)]
pub(crate) enum Ran {
    /// To this address.
    Out(SocketAddr, Vec<u8>),
    /// User space sends it on.
    SendOn { slow: Slow, frame: Vec<u8> },
    /// Nowhere.
    Dropped,
    /// It is none of the kernel's.
    Passed,
}

/// What user space does with a frame that the kernel's program has worked on.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// It goes to the endpoint that it is addressed to.
    Once,
    /// To its application's group.
    Copies,
    /// To the endpoint that it is addressed to, and after a second pass to another.
    Twice,
}

/// Element-wide counters, and by name those that only the kernel's program has.
pub(crate) type Counted = (Counters, [(&'static str, u64); 4]);

/// By application: its counters, and the age of its last admitted frame.
pub(crate) type ByApplication = HashMap<u32, (ApplicationCounters, Option<Duration>)>;

/// The same by pool.
pub(crate) type ByPool = HashMap<u32, (PoolCounters, Option<Duration>)>;

/// A change that the kernel does not take.
#[cfg_attr(not(feature = "xdp"), expect(dead_code, reason = "made where there is a program"))]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Untaken {
    /// The program there speaks IPv4.
    #[error("endpoint {endpoint} is at {addr}: an element with --xdp forwards to IPv4 addresses only")]
    Family { endpoint: u32, addr: SocketAddr },
    /// What the loader says.
    #[error("{0}")]
    Other(String),
}

/// What is to be done with a frame that came up by the slow port: its source port says so.
#[cfg(feature = "xdp")]
pub(crate) fn slow_of(source: u16) -> Slow {
    match source {
        pathcall_xdp::SLOW_MULTICAST => Slow::Copies,
        pathcall_xdp::SLOW_CLONE => Slow::Twice,
        _ => Slow::Once,
    }
}

#[cfg(not(feature = "xdp"))]
pub(crate) fn slow_of(_: u16) -> Slow {
    Slow::Once
}

/// The program at no interface, for tests; nothing, said aloud, where it is not permitted.
#[cfg(all(test, feature = "xdp"))]
pub(crate) fn tested(data: SocketAddr, size: Size) -> Option<(Kernel, Link)> {
    let request = Request { interfaces: &[], rooted: &[], data, advertise: None, size, inlined: false };
    match Kernel::start(&request) {
        Err(Error::Xdp(pathcall_xdp::Error::Permission)) if std::env::var_os("PATHCALL_ROOT_TESTS").is_none() => {
            println!("skipped: it takes root");
            None
        }
        started => Some(started.expect("it loads").expect("the kernel takes the program")),
    }
}

#[cfg(feature = "xdp")]
pub(crate) use with::Kernel;
#[cfg(not(feature = "xdp"))]
pub(crate) use without::Kernel;

#[cfg(feature = "xdp")]
mod with {
    use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

    use pathcall_program::CloneSize;
    use pathcall_xdp::function::SwitchProgram;
    use pathcall_xdp::{Config, Mode, Packet};
    use rustix::time::{ClockId, clock_gettime};

    use super::{
        Application, Attached, ByApplication, ByPool, Counted, Duration, Endpoint, Error, Link, NonZeroU16, Pool, Ran,
        Request, SocketAddr, Untaken, slow_of,
    };

    /// Applications in the kernel, and the port that frames come up by.
    #[derive(Debug)]
    pub(crate) struct Kernel {
        program: pathcall_xdp::Kernel,
        /// For root programs; none: taken.
        named: Option<SwitchProgram>,
        attached: Vec<Attached>,
        element: SocketAddrV4,
        packet: Vec<u8>,
        buffer: Vec<u8>,
    }

    /// On the clock of the program's last frames.
    fn now() -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    }

    /// Whether the kernel looks for ways out for what comes in by this interface; if it does not say, yes.
    fn forwards(interface: &str) -> bool {
        let setting = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"));
        setting.map_or(true, |setting| setting.trim() != "0")
    }

    impl From<pathcall_xdp::Error> for Untaken {
        fn from(error: pathcall_xdp::Error) -> Self {
            Self::Other(error.to_string())
        }
    }

    impl Kernel {
        /// Loads and attaches the program; with it comes the link that worked-on frames come up by. `None`,
        /// said aloud, where the machine lacks what the program needs.
        pub(crate) fn start(request: &Request<'_>) -> Result<Option<(Self, Link)>, Error> {
            match Self::load(request) {
                Err(Error::Xdp(error)) if error.is_lack() => {
                    tracing::warn!("no XDP program here: {error}; frames are worked on in user space");
                    Ok(None)
                }
                loaded => loaded.map(Some),
            }
        }

        fn load(request: &Request<'_>) -> Result<(Self, Link), Error> {
            let ip = match (request.data.ip(), request.advertise) {
                (ip, None) | (_, Some(ip)) if !ip.is_unspecified() => ip,
                (ip, _) if !ip.is_unspecified() => ip,
                _ => return Err(Error::Unspecified { port: crate::Port::Data, addr: request.data }),
            };
            let IpAddr::V4(ip) = ip else { return Err(Error::XdpFamily { addr: ip }) };
            let up = SocketAddr::new(request.data.ip(), 0);
            let link = Link::bind(up).map_err(|source| Error::bind(crate::Port::Data, up, source))?;
            let (data_port, slow_port) = (request.data.port(), link.local_addr().port());
            let Request { size, inlined, .. } = *request;
            let clones = CloneSize::default();
            let config = Config { size, clones, data_port, slow_port, routed: true, inlined };
            let mut program = pathcall_xdp::Kernel::load(&config)?;
            program.own(ip)?;
            program.number_after(crate::switch::first_number())?;
            let named = Some(SwitchProgram::of(&program, &config)?);
            let mut attached = Vec::new();
            for interface in request.interfaces {
                if request.rooted.contains(interface) {
                    program.connect(interface)?;
                    continue;
                }
                let native = program.attach(interface)? == Mode::Native;
                if !forwards(interface) {
                    tracing::warn!(
                        "{interface} does not forward: frames leave by user space, which is slower; \
                         `sysctl -w net.ipv4.conf.{interface}.forwarding=1` lets the kernel send them on"
                    );
                }
                attached.push(Attached { interface: interface.clone(), native, inline: inlined });
            }
            let element = SocketAddrV4::new(ip, data_port);
            Ok((Self { program, named, attached, element, packet: Vec::new(), buffer: Vec::new() }, link))
        }

        pub(crate) fn attached(&self) -> &[Attached] {
            &self.attached
        }

        pub(crate) fn take_program(&mut self) -> Option<SwitchProgram> {
            self.named.take()
        }

        pub(crate) fn has(&self, gaid: u32) -> bool {
            self.program.has(gaid)
        }

        pub(crate) fn install(&mut self, application: &Application) -> Result<(), Untaken> {
            Ok(self.program.install(application)?)
        }

        pub(crate) fn install_pool(&mut self, pool: &Pool) -> Result<(), Untaken> {
            Ok(self.program.install_pool(pool)?)
        }

        pub(crate) fn set_switch_id(&mut self, switch_id: NonZeroU16) -> Result<(), Untaken> {
            Ok(self.program.set_switch_id(switch_id)?)
        }

        pub(crate) fn remove(&mut self, gaid: u32) -> Result<(), Untaken> {
            Ok(self.program.remove(gaid)?)
        }

        pub(crate) fn reset(&mut self, gaid: u32) -> Result<(), Untaken> {
            Ok(self.program.reset(gaid)?)
        }

        pub(crate) fn set_endpoint(&mut self, endpoint: &Endpoint, addr: SocketAddr) -> Result<(), Untaken> {
            let SocketAddr::V4(v4) = addr else {
                return Err(Untaken::Family { endpoint: endpoint.endpoint, addr });
            };
            Ok(self.program.set_endpoint(endpoint, v4)?)
        }

        pub(crate) fn remove_endpoint(&mut self, endpoint: u32) -> Result<(), Untaken> {
            Ok(self.program.remove_endpoint(endpoint)?)
        }

        pub(crate) fn set_group(&mut self, gaid: u32, endpoints: &[u32]) -> Result<(), Untaken> {
            Ok(self.program.set_group(gaid, endpoints)?)
        }

        pub(crate) fn read_rows(&self, gaid: u32, row: u32, count: u32) -> Result<Vec<i32>, Untaken> {
            Ok(self.program.read_rows(gaid, row, count)?)
        }

        /// Takes a frame through the program that did not come through it: in fragments, or by an interface
        /// that it is not attached to.
        pub(crate) fn run(&mut self, frame: &[u8], congested: bool) -> Result<Ran, Untaken> {
            let from = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            Packet { from, to: self.element, congested }.emit(frame, &mut self.packet);
            Ok(match self.program.run(&self.packet, &mut self.buffer)? {
                pathcall_xdp::Ran::Out(packet, frame) => Ran::Out(packet.to.into(), frame),
                pathcall_xdp::Ran::Slow(packet, frame) => Ran::SendOn { slow: slow_of(packet.from.port()), frame },
                pathcall_xdp::Ran::Passed => Ran::Passed,
                pathcall_xdp::Ran::Dropped => Ran::Dropped,
            })
        }

        pub(crate) fn counters(&self) -> Result<Counted, Untaken> {
            let element = self.program.counters()?;
            let own = [
                ("xdp_drop_checksum", element.drop_checksum),
                ("xdp_passed", element.passed),
                ("xdp_slow", element.slow),
                ("xdp_inline", element.passing),
            ];
            Ok((element.counters, own))
        }

        pub(crate) fn applications(&self) -> Result<ByApplication, Untaken> {
            let now = now();
            let all = self.program.applications()?.into_iter().map(|(application, last, counters)| {
                (application.gaid, (counters, last.map(|last| now.saturating_sub(last))))
            });
            Ok(all.collect())
        }

        pub(crate) fn pools(&self) -> Result<ByPool, Untaken> {
            let now = now();
            let all = self.program.pools()?.into_iter();
            Ok(all
                .map(|(gaid, last, counters)| (gaid, (counters, last.map(|last| now.saturating_sub(last)))))
                .collect())
        }
    }
}

#[cfg(not(feature = "xdp"))]
mod without {
    use super::{
        Application, Attached, ByApplication, ByPool, Counted, Endpoint, Error, Link, NonZeroU16, Pool, Ran, Request,
        SocketAddr, Untaken,
    };

    /// Nothing: this build has no program for the kernel.
    #[derive(Debug)]
    pub(crate) enum Kernel {}

    #[rustfmt::skip]
    impl Kernel {
        pub(crate) fn start(_: &Request<'_>) -> Result<Option<(Self, Link)>, Error> { Err(Error::NoXdp) }
        pub(crate) fn attached(&self) -> &[Attached] { match *self {} }
        pub(crate) fn has(&self, _: u32) -> bool { match *self {} }
        pub(crate) fn install(&mut self, _: &Application) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn install_pool(&mut self, _: &Pool) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn set_switch_id(&mut self, _: NonZeroU16) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn remove(&mut self, _: u32) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn reset(&mut self, _: u32) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn set_endpoint(&mut self, _: &Endpoint, _: SocketAddr) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn remove_endpoint(&mut self, _: u32) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn set_group(&mut self, _: u32, _: &[u32]) -> Result<(), Untaken> { match *self {} }
        pub(crate) fn read_rows(&self, _: u32, _: u32, _: u32) -> Result<Vec<i32>, Untaken> { match *self {} }
        pub(crate) fn run(&mut self, _: &[u8], _: bool) -> Result<Ran, Untaken> { match *self {} }
        pub(crate) fn counters(&self) -> Result<Counted, Untaken> { match *self {} }
        pub(crate) fn pools(&self) -> Result<ByPool, Untaken> { match *self {} }
        pub(crate) fn applications(&self) -> Result<ByApplication, Untaken> {
            match *self {}
        }
    }
}
