//! Command `pathcall testbed`: several hosts on one machine, as network namespaces.
//!
//! `up` leaves a testbed that `down` takes down; `up -- command` takes it down itself in any case. `run` and `capture`
//! replace this process by the program, so that exit code and signals are the program's own.

mod failure;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use pathcall_console::{TextTable, print, stopped};
use pathcall_testbed::{
    ELEMENTS_MAX, FrameShare, HOSTS_MAX, LinkDelay, LinkProfile, LinkRate, MTU_DEFAULT, NodeName, Testbed,
    list_testbeds,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::runtime::Runtime;

use failure::Failure;

/// Default name of a testbed.
const NAME_DEFAULT: &str = "bed";
/// Variable with the testbed's name, for the command of `up -- command`.
const NAME_VARIABLE: &str = "PATHCALL_TESTBED";
/// Beginning of the last line that `up` prints.
const LAST_LINE: &str = "take it down:";
/// Time for the command of `up -- command` to end after it was told to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Build several hosts on this machine, with links of a given rate and quality (needs root)
#[derive(Debug, Parser)]
#[command(name = "pathcall testbed", version, arg_required_else_help = true)]
struct TestbedArgs {
    #[command(subcommand)]
    command: TestbedCommand,
}

#[derive(Debug, Subcommand)]
enum TestbedCommand {
    /// Build a testbed; with a command after --, run it and take the testbed down again
    Up(UpArgs),
    /// Run a command on a host or an element
    Run(RunArgs),
    /// Capture the traffic of a host or an element with tcpdump
    Capture(CaptureArgs),
    /// Unplug the cable of a host
    Cut(LinkArgs),
    /// Plug the cable in again
    Mend(LinkArgs),
    /// End all processes of a testbed and take it down
    Down(NameArgs),
    /// List the running testbeds
    List,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// Name of the testbed: lower-case letters and digits
    #[arg(long, value_name = "BED", env = NAME_VARIABLE, default_value = NAME_DEFAULT)]
    name: String,
}

#[derive(Debug, Args)]
struct UpArgs {
    #[command(flatten)]
    bed: NameArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Stay with the testbed where it needs a process that delays frames
    #[arg(long, hide = true)]
    stay: bool,
    /// Command to run on this machine; PATHCALL_TESTBED has the testbed's name
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Properties of a testbed.
#[derive(Debug, Args)]
struct ShapeArgs {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = up_to(HOSTS_MAX))]
    hosts: usize,
    /// Number of elements: with two, hosts 1, 3 ... are at the first and hosts 2, 4 ... at the second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(ELEMENTS_MAX))]
    elements: usize,
    /// Bits per second of each link, in each direction, as in 1gbit
    #[arg(long, value_name = "RATE")]
    rate: Option<LinkRate>,
    /// Length of the link's queue in bytes, beyond which frames are dropped [default: 256 full frames]
    #[arg(long, value_name = "BYTES", requires = "rate")]
    queue: Option<u32>,
    /// Queue length in bytes from which ECN-capable frames are marked [default: never]
    #[arg(long, value_name = "BYTES", requires = "rate")]
    mark: Option<u32>,
    /// Share of frames that each link loses, as in 0.1%
    #[arg(long, value_name = "SHARE", default_value_t)]
    loss: FrameShare,
    /// Share of frames that each link delivers twice
    #[arg(long, value_name = "SHARE", default_value_t)]
    repeat: FrameShare,
    /// Share of ECN-capable frames that each link marks as "congestion experienced"
    #[arg(long, value_name = "SHARE", default_value_t)]
    ce: FrameShare,
    /// Delay of each frame on a link, as in 5ms
    #[arg(long, value_name = "TIME", default_value_t)]
    delay: LinkDelay,
    /// Share of frames without delay, which overtake others
    #[arg(long, value_name = "SHARE", default_value_t)]
    reorder: FrameShare,
    /// Add a wire to links without properties, to count and buffer frames
    #[arg(long)]
    wired: bool,
    /// MTU: bytes of an IP packet
    #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT)]
    mtu: u32,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    bed: NameArgs,
    /// Host by number, or element: 1, h1, e1
    node: NodeName,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct LinkArgs {
    #[command(flatten)]
    bed: NameArgs,
    /// Number of the host
    host: usize,
}

#[derive(Debug, Args)]
struct CaptureArgs {
    #[command(flatten)]
    bed: NameArgs,
    /// Host by number, or element: 1, h1, e1
    node: NodeName,
    /// Output file for frames [default: print them]
    #[arg(short, value_name = "FILE")]
    write: Option<PathBuf>,
    /// More arguments for tcpdump, such as a filter
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    run(TestbedArgs::parse()).unwrap_or_else(|failure| {
        eprintln!("pathcall: {failure}");
        ExitCode::FAILURE
    })
}

fn run(args: TestbedArgs) -> Result<ExitCode, Failure> {
    match args.command {
        TestbedCommand::Up(args) => up(args),
        TestbedCommand::Run(RunArgs { bed, node, command }) => {
            let node = Testbed::open(&bed.name)?.node(node)?;
            let [program, arguments @ ..] = &command[..] else { return Ok(ExitCode::SUCCESS) };
            replace_process(node.command(program).args(arguments))
        }
        TestbedCommand::Capture(CaptureArgs { bed, node, write, arguments }) => {
            let node = Testbed::open(&bed.name)?.node(node)?;
            replace_process(node.capture(write.as_deref())?.args(arguments))
        }
        TestbedCommand::Cut(LinkArgs { bed, host }) => done(Testbed::open(&bed.name)?.link(host)?.cut()),
        TestbedCommand::Mend(LinkArgs { bed, host }) => done(Testbed::open(&bed.name)?.link(host)?.mend()),
        TestbedCommand::Down(bed) => done(Testbed::open(&bed.name)?.down()),
        TestbedCommand::List => list(),
    }
}

fn done(done: Result<(), pathcall_testbed::Error>) -> Result<ExitCode, Failure> {
    Ok(done.map(|()| ExitCode::SUCCESS)?)
}

fn up(args: UpArgs) -> Result<ExitCode, Failure> {
    let UpArgs { bed: NameArgs { name }, shape, stay, command } = args;
    if command.is_empty() && shape.delay.is_some() && !stay {
        return start_background();
    }
    let bed = shape.build(&name)?;
    let Some((program, arguments)) = command.split_first() else {
        // A testbed that needs a process has this one.
        if bed.needs_owner() {
            match bed.stay(|bed| Ok::<_, Failure>(print(&summary(bed))?))? {}
        }
        print(&summary(&bed))?;
        bed.keep()?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env(NAME_VARIABLE, &name).kill_on_drop(true);
    let ended = Runtime::new().map_err(Failure::Runtime)?.block_on(async {
        let signal = stopped()?;
        let mut child = command.spawn().map_err(|source| cannot_run(&command, source))?;
        tokio::select! {
            ended = child.wait() => ended.map_err(|source| cannot_run(&command, source)),
            () = signal => {
                end(&mut child).await;
                Err(Failure::Interrupted)
            }
        }
    });
    bed.down()?;
    Ok(exit_code(ended?))
}

/// Runs the same command in a process that outlives this one, and waits until the testbed is ready.
fn start_background() -> Result<ExitCode, Failure> {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::UnknownProgramPath)?);
    command.args(std::env::args_os().skip(1)).arg("--stay");
    // The process is in its own group, away from Ctrl-C, and keeps no inherited descriptors open.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |source| Failure::Spawn { program: "pathcall testbed up".to_owned(), source };
    let mut child = command.spawn().map_err(failed)?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        while !ready.contains(LAST_LINE) && lines.read_line(&mut ready).map_err(failed)? > 0 {}
    }
    if ready.contains(LAST_LINE) {
        print(&ready)?;
        return Ok(ExitCode::SUCCESS);
    }
    let output = child.wait_with_output().map_err(failed)?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(exit_code(output.status))
}

/// Summary of a testbed that stays.
fn summary(bed: &Testbed) -> String {
    let mut table = TextTable::new(["node", "address", "namespace"]);
    for node in bed.nodes() {
        table.row([node.name().to_string(), node.address().to_string(), node.namespace().to_owned()]);
    }
    let name = bed.name();
    let option = if name == NAME_DEFAULT { String::new() } else { format!(" --name {name}") };
    format!(
        "ready: testbed {name}\n\n{table}\nrun on host 1:   pathcall testbed run{option} 1 -- COMMAND\n\
         on element 1:    pathcall testbed run{option} e1 -- COMMAND\n{LAST_LINE}    pathcall testbed down{option}\n"
    )
}

fn list() -> Result<ExitCode, Failure> {
    let mut table = TextTable::new(["testbed", "nodes"]);
    for (name, nodes) in list_testbeds()? {
        let nodes: Vec<String> = nodes.iter().filter(|node| node.has_address()).map(NodeName::to_string).collect();
        table.row([name, nodes.join(" ")]);
    }
    print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the command to stop, and kills it after a time-out.
async fn end(child: &mut Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    // The command may have ended already.
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Replaces this process by the command. Returns only on failure.
fn replace_process(command: &mut Command) -> Result<ExitCode, Failure> {
    let source = command.exec();
    Err(Failure::Spawn { program: command.get_program().to_string_lossy().into_owned(), source })
}

/// Parser of a number from 1 to `max`.
fn up_to(max: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max as u64)
}

fn cannot_run(command: &tokio::process::Command, source: std::io::Error) -> Failure {
    Failure::Spawn { program: command.as_std().get_program().to_string_lossy().into_owned(), source }
}

/// Exit code as in shells: 128 plus the number of a signal.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl ShapeArgs {
    fn build(self, name: &str) -> Result<Testbed, Failure> {
        let Self { hosts, elements, rate, queue, mark, loss, repeat, ce, delay, reorder, wired, mtu } = self;
        let profile =
            LinkProfile { rate, queue_bytes: queue, mark_bytes: mark, loss, repeat, ce, delay, reorder, wired };
        let builder = Testbed::builder().name(name).hosts(hosts).elements(elements).mtu(mtu).profile(profile);
        Ok(builder.up()?)
    }
}
