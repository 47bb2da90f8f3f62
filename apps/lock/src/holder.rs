//! Holder of all locks that dies: a dropped channel, or a killed process. Its locks must become free.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apps_report::call_path::{Transport, tonic_channel};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::pb::PATHCALL;
use crate::pb::lock_client::LockClient;
use crate::{Args, Death, acquire, names, try_acquire};

/// Line that a process prints once it holds the locks.
const HOLDING: &str = "holding";
/// Time in which no other client may get a lock.
const PROBE: Duration = Duration::from_millis(200);
/// Ids outside the range of the clients.
const HOLDER: u64 = u32::MAX as u64;
const OTHER: u64 = HOLDER + 1;

/// Holder of all locks.
pub(crate) enum Holder {
    Here(Stub),
    Process(Child),
}

/// Stub with its own connection.
pub(crate) enum Stub {
    Pathcall(LockClient<pathcall::Channel>),
    Plain(LockClient<tonic::transport::Channel>),
}

impl Holder {
    /// Takes all locks, and checks that another client gets none.
    pub(crate) async fn start(url: &str, args: &Args, death: Death) -> Result<Self> {
        let holder = match death {
            Death::Dropped => Self::Here(take_all(url, args).await?),
            Death::Killed => Self::Process(spawn(url, args).await?),
        };
        let got = match Stub::connect(url, args).await? {
            Stub::Pathcall(stub) => probe(stub).await?,
            Stub::Plain(stub) => probe(stub).await?,
        };
        ensure!(!got, "a lock was granted while another client holds it");
        Ok(holder)
    }

    /// Dies without telling the server.
    pub(crate) async fn die(self) -> Result<()> {
        match self {
            Self::Here(stub) => drop(stub),
            Self::Process(mut child) => child.kill().await.context("cannot kill the holder process")?,
        }
        Ok(())
    }
}

impl Stub {
    async fn connect(url: &str, args: &Args) -> Result<Self> {
        if args.way.plain {
            return Ok(Self::Plain(LockClient::new(tonic_channel(url.to_owned()).await?)));
        }
        let channel = pathcall::Channel::connect(url.to_owned(), &PATHCALL).await?;
        Ok(Self::Pathcall(LockClient::new(channel)))
    }
}

/// Process of `--die killed`: holds the locks until it is killed or its parent ends.
pub(crate) async fn hold(url: &str, args: &Args) -> Result<()> {
    let _stub = take_all(url, args).await?;
    println!("{HOLDING}");
    std::io::stdout().flush()?;
    // Ends with its parent.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

async fn take_all(url: &str, args: &Args) -> Result<Stub> {
    let all = names(&(0..args.locks).collect::<Vec<_>>(), HOLDER);
    let mut stub = Stub::connect(url, args).await?;
    match &mut stub {
        Stub::Pathcall(stub) => acquire(stub, all).await?,
        Stub::Plain(stub) => acquire(stub, all).await?,
    };
    Ok(stub)
}

async fn probe<T: Transport>(mut stub: LockClient<T>) -> Result<bool> {
    Ok(try_acquire(&mut stub, names(&[0], OTHER), PROBE).await?.is_some())
}

async fn spawn(url: &str, args: &Args) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--hold", url, "--locks", &args.locks.to_string()]);
    if args.way.plain {
        command.arg("--plain");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("cannot start the holder process")?;
    let stdout = child.stdout.take().context("the holder process has no output")?;
    let line = BufReader::new(stdout).lines().next_line().await?;
    ensure!(line.as_deref() == Some(HOLDING), "the holder process ended before it took the locks");
    Ok(child)
}
