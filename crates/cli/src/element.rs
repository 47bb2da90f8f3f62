//! Command `pathcall element`: runs an element until it is stopped.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use pathcall_auth::Security;
use pathcall_control::LISTEN_DEFAULT;
use pathcall_element::{CONTROL_DEFAULT, Config, DATA_DEFAULT, Handle};

use crate::failure::Failure;
use crate::function::carry::{ElementFunctionArgs, LoadedFunction};
use crate::security::SecurityArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct ElementArgs {
    /// Controller to register with; the element retries until the controller answers
    #[arg(long, value_name = "URL", default_value_t = format!("http://{LISTEN_DEFAULT}"))]
    controller: String,
    #[command(flatten)]
    sockets: SocketArgs,
    #[command(flatten)]
    carry: ElementFunctionArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

/// Options that `element` and `up` share.
#[derive(Debug, Args)]
pub(crate) struct SocketArgs {
    /// UDP address for frames; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = DATA_DEFAULT)]
    data: SocketAddr,
    /// TCP address of the element's control service; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = CONTROL_DEFAULT)]
    control: SocketAddr,
    /// IP address under which others reach the element, if it listens on all addresses
    #[arg(long, value_name = "IP")]
    advertise: Option<IpAddr>,
    /// Rack of the element: cloned calls of callers in this rack pass it
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    rack: String,
    /// Register rows
    #[arg(long, value_name = "N", default_value_t = Config::default().size.rows)]
    rows: usize,
    /// Lane registers, 32 bits each
    #[arg(long, value_name = "N", default_value_t = Config::default().size.lanes)]
    lanes: usize,
    /// Slots of the repeat filter: each holds one reliable flow of a caller
    #[arg(long, value_name = "N", default_value_t = Config::default().size.slots)]
    slots: usize,
    /// Poll for frames without waiting: shortest delay, but uses a whole processor
    #[arg(long)]
    busy_poll: bool,
    /// Endpoints on this host send frames by UDP instead of memory shared with the element
    #[arg(long)]
    no_shared_memory: bool,
    /// Processor that handles frames, counted from 0 [default: any]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Interface to which the XDP program is attached; may be repeated
    #[arg(long, value_name = "IFACE")]
    xdp: Vec<String>,
    /// The XDP program also processes frames that it routes from one endpoint to another
    #[arg(long, requires = "xdp")]
    inline: bool,
}

impl SocketArgs {
    /// Starts an element that registers with the controller at `controller`.
    pub(crate) async fn start(self, controller: String, security: Security) -> Result<Handle, Failure> {
        self.start_with_roots(controller, security, Vec::new()).await
    }

    /// Starts an element like [`Self::start`], where other programs attach root programs to `rooted` interfaces.
    async fn start_with_roots(
        self,
        controller: String,
        security: Security,
        rooted: Vec<String>,
    ) -> Result<Handle, Failure> {
        let Self { data, control, advertise, rack, rows, lanes, slots, busy_poll, no_shared_memory, cpu, xdp, inline } =
            self;
        let controller = Some(controller);
        let mut config = Config::default()
            .data(data)
            .control(control)
            .advertise(advertise)
            .rack(rack)
            .controller(controller)
            .busy_poll(busy_poll)
            .cpu(cpu)
            .xdp(xdp)
            .rooted(rooted)
            .inline(inline)
            .security(security);
        config.shared_memory = !no_shared_memory;
        (config.size.rows, config.size.lanes, config.size.slots) = (rows, lanes, slots);
        Ok(pathcall_element::run(config).await?)
    }
}

/// Addresses of an element: `frames at …, XDP on …, control calls at …`.
pub(crate) fn addresses(element: &Handle) -> String {
    let attached = element.attached().iter().map(|attached| {
        let mode = if attached.native { "native" } else { "generic" };
        let inline = if attached.inline { ", inline" } else { "" };
        format!(", XDP on {} ({mode}{inline})", attached.interface)
    });
    let attached: String = attached.collect();
    format!("frames at {} (UDP){attached}, control calls at {}", element.data_addr(), element.control_url())
}

pub(crate) async fn run(args: ElementArgs) -> Result<(), Failure> {
    let ElementArgs { controller, sockets, carry, security } = args;
    let security = security.read()?;
    let carried = carry.read()?;
    let rooted = carried.as_ref().map(LoadedFunction::interfaces).unwrap_or_default();
    let mut element = sockets.start_with_roots(controller.clone(), security.clone(), rooted).await?;
    let function = match carried {
        Some(carried) => Some(carried.start(&mut element, security).await?),
        None => None,
    };
    let with = function.as_ref().map_or_else(String::new, |function| function.addresses());
    let signal = stopped()?;
    print(&format!("ready: element, {}{with}, controller {controller}\n", addresses(&element)))?;
    signal.await;
    if let Some(function) = function {
        function.shutdown().await;
    }
    element.shutdown().await;
    Ok(())
}
