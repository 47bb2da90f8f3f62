//! Command `pathcall controller`: runs a controller until it is stopped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pathcall_auth::Security;
use pathcall_control::state::{IDLE_DEFAULT, IDLE_MAX_DEFAULT, WEIGHT_MAX};
use pathcall_control::{Config, Handle, LISTEN_DEFAULT, MemoryPolicy, StoreLocation};

use crate::failure::Failure;
use crate::security::SecurityArgs;
use pathcall_console::{print, stopped};

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// TCP address to listen on; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
    /// File that stores registrations across restarts [default: memory only]
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Weight of an application when element memory is shared out, 1 to 1000; may be repeated [default: 1]
    #[arg(long, value_name = "NAME=N", value_parser = weight)]
    weight: Vec<(String, u32)>,
    /// Maximum element memory of an application, in bytes or with K, M or G; may be repeated [default: no maximum]
    #[arg(long, value_name = "NAME=BYTES", value_parser = quota)]
    quota: Vec<(String, u64)>,
    /// Seconds without frames after which an application gives its memory to others that want it
    #[arg(long, value_name = "S", default_value_t = IDLE_DEFAULT.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
    /// Seconds without frames after which an application always gives its memory back
    #[arg(long, value_name = "S", default_value_t = IDLE_MAX_DEFAULT.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    idle_max: u64,
}

impl ControllerArgs {
    pub(crate) async fn start(self, security: Security) -> Result<Handle, Failure> {
        let listener = pathcall_control::bind(self.listen).await?;
        let store = self.store.map_or(StoreLocation::Memory, StoreLocation::File);
        let memory = MemoryPolicy {
            weights: self.weight.into_iter().collect(),
            quotas: self.quota.into_iter().collect(),
            idle: Duration::from_secs(self.idle),
            idle_max: Duration::from_secs(self.idle_max.max(self.idle)),
            ..MemoryPolicy::default()
        };
        let config = Config::default().store(store).memory(memory).security(security);
        Ok(pathcall_control::serve(listener, config).await?)
    }
}

/// Parses `NAME=N`, a weight.
fn weight(text: &str) -> Result<(String, u32), String> {
    let (name, weight) = named(text, "NAME=N")?;
    match weight.parse() {
        Ok(number) if (1..=WEIGHT_MAX).contains(&number) => Ok((name, number)),
        _ => Err(format!("invalid weight {weight} of {name} (1 to {WEIGHT_MAX})")),
    }
}

/// Parses `NAME=BYTES`, a quota.
fn quota(text: &str) -> Result<(String, u64), String> {
    let (name, quota) = named(text, "NAME=BYTES")?;
    let (digits, unit) = match quota.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, 1 << (10 * (1 + "KMG".find(&quota[digits.len()..]).unwrap_or(0)))),
        None => (quota, 1),
    };
    let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(unit));
    bytes.map(|bytes| (name.clone(), bytes)).ok_or_else(|| {
        format!("invalid quota {quota} of {name}: expected a number of bytes, such as 4096, 64K, 8M or 1G")
    })
}

/// Splits at the last `=`, because names may contain one.
fn named<'a>(text: &'a str, expected: &str) -> Result<(String, &'a str), String> {
    match text.rsplit_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value)),
        _ => Err(format!("expected {expected}, got {text}")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ControllerCommandArgs {
    #[command(flatten)]
    controller: ControllerArgs,
    #[command(flatten)]
    security: SecurityArgs,
}

pub(crate) async fn run(args: ControllerCommandArgs) -> Result<(), Failure> {
    let mut controller = args.controller.start(args.security.read()?).await?;
    let signal = stopped()?;
    print(&format!("ready: controller at {}\n", controller.url()))?;
    let ended = tokio::select! {
        () = signal => Ok(()),
        error = controller.failed() => Err(error.into()),
    };
    controller.shutdown().await;
    ended
}
