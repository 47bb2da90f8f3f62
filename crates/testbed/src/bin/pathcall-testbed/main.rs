//! `pathcall testbed`: several hosts on one machine, to run programs on.
//!
//! `up` leaves a bed that `down` takes away; `up -- command` takes it away itself, whatever happens.
//! `run` and `capture` become the program that they run, so that its exit code and signals are its own.

mod failure;

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use pathcall_console::{Table, print, stopped};
use pathcall_testbed::{Delay, ELEMENTS_MAX, HOSTS_MAX, MTU_DEFAULT, NodeName, Profile, Rate, Share, Testbed, beds};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::runtime::Runtime;

use failure::Failure;

/// The name of a bed that is given none.
const NAME_DEFAULT: &str = "bed";
/// The variable that tells the command of `up -- command` which bed is its own.
const NAME_VARIABLE: &str = "PATHCALL_TESTBED";
/// The last line of what `up` prints begins with this.
const LAST_WORDS: &str = "take it down:";
/// The command of `up -- command` may tidy up for so long after it was told to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// Build several hosts on this machine, with links of a given rate and quality (needs root)
#[derive(Debug, Parser)]
#[command(name = "pathcall testbed", version, arg_required_else_help = true)]
struct TestbedArgs {
    #[command(subcommand)]
    command: TestbedCommand,
}

#[derive(Debug, Subcommand)]
enum TestbedCommand {
    /// Build a testbed; with a command behind --, run that and take the testbed down again
    Up(UpArgs),
    /// Run a command on a host or an element
    Run(RunArgs),
    /// Show what a host or an element sends and receives, by tcpdump
    Capture(CaptureArgs),
    /// Take the cable out of a host
    Cut(LinkArgs),
    /// Put the cable back
    Mend(LinkArgs),
    /// End what runs on a testbed and take it down
    Down(BedArgs),
    /// Name the testbeds that are up
    List,
}

#[derive(Debug, Args)]
struct BedArgs {
    /// Name of the testbed: lower-case letters and digits
    #[arg(long, value_name = "BED", env = NAME_VARIABLE, default_value = NAME_DEFAULT)]
    name: String,
}

#[derive(Debug, Args)]
struct UpArgs {
    #[command(flatten)]
    bed: BedArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Stay with the testbed where it needs a process that delays frames
    #[arg(long, hide = true)]
    stay: bool,
    /// Command to run on this machine; it finds the testbed's name in PATHCALL_TESTBED
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What a testbed is like.
#[derive(Debug, Args)]
struct ShapeArgs {
    /// Hosts
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = up_to(HOSTS_MAX))]
    hosts: usize,
    /// Elements: with two, hosts 1, 3 ... are at the first and hosts 2, 4 ... at the second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(ELEMENTS_MAX))]
    elements: usize,
    /// Bits a second of each link, in each direction, as in 1gbit
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Bytes that may wait for the rate before frames get lost [default: 256 full frames]
    #[arg(long, value_name = "BYTES", requires = "rate")]
    queue: Option<u32>,
    /// Bytes that may wait for the rate before ECN-capable frames are marked [default: none are]
    #[arg(long, value_name = "BYTES", requires = "rate")]
    mark: Option<u32>,
    /// Frames that each link loses, as in 0.1%
    #[arg(long, value_name = "SHARE", default_value_t)]
    loss: Share,
    /// Frames that each link delivers twice
    #[arg(long, value_name = "SHARE", default_value_t)]
    repeat: Share,
    /// ECN-capable frames that each link marks as "congestion experienced"
    #[arg(long, value_name = "SHARE", default_value_t)]
    ce: Share,
    /// How long each frame takes on a link, as in 5ms
    #[arg(long, value_name = "TIME", default_value_t)]
    delay: Delay,
    /// Frames that take no time, and so overtake others
    #[arg(long, value_name = "SHARE", default_value_t)]
    reorder: Share,
    /// Have links without any property pass a wire, which counts frames and lets them wait
    #[arg(long)]
    wired: bool,
    /// Bytes of an IP packet
    #[arg(long, value_name = "BYTES", default_value_t = MTU_DEFAULT)]
    mtu: u32,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Host by its number, or element: 1, h1, e1
    node: NodeName,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct LinkArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Host by its number
    host: usize,
}

#[derive(Debug, Args)]
struct CaptureArgs {
    #[command(flatten)]
    bed: BedArgs,
    /// Host by its number, or element: 1, h1, e1
    node: NodeName,
    /// File to write frames to; without one they are printed
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
            become_it(node.command(program).args(arguments))
        }
        TestbedCommand::Capture(CaptureArgs { bed, node, write, arguments }) => {
            let node = Testbed::open(&bed.name)?.node(node)?;
            become_it(node.capture(write.as_deref())?.args(arguments))
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
    let UpArgs { bed: BedArgs { name }, shape, stay, command } = args;
    if command.is_empty() && shape.delay.is_some() && !stay {
        return behind();
    }
    let bed = shape.build(&name)?;
    let Some((program, arguments)) = command.split_first() else {
        // What can't be kept without a process has this one.
        if bed.needs_owner() {
            match bed.stay(|bed| Ok::<_, Failure>(print(&said(bed))?))? {}
        }
        print(&said(&bed))?;
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

/// Has a process that outlives this one do the same, and waits until it is ready.
fn behind() -> Result<ExitCode, Failure> {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::NoPlace)?);
    command.args(std::env::args_os().skip(1)).arg("--stay");
    // Ctrl-C is not for it, and it keeps nothing open that others may wait for the end of.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |source| Failure::Spawn { program: "pathcall testbed up".to_owned(), source };
    let mut child = command.spawn().map_err(failed)?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        while !ready.contains(LAST_WORDS) && lines.read_line(&mut ready).map_err(failed)? > 0 {}
    }
    if ready.contains(LAST_WORDS) {
        print(&ready)?;
        return Ok(ExitCode::SUCCESS);
    }
    let output = child.wait_with_output().map_err(failed)?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(exit_code(output.status))
}

/// What is told of a testbed that stays.
fn said(bed: &Testbed) -> String {
    let mut table = Table::new(["node", "address", "namespace"]);
    for node in bed.nodes() {
        table.row([node.name().to_string(), node.address().to_string(), node.namespace().to_owned()]);
    }
    let name = bed.name();
    let option = if name == NAME_DEFAULT { String::new() } else { format!(" --name {name}") };
    format!(
        "ready: testbed {name}\n\n{table}\nrun on host 1:   pathcall testbed run{option} 1 -- COMMAND\n\
         on element 1:    pathcall testbed run{option} e1 -- COMMAND\n{LAST_WORDS}    pathcall testbed down{option}\n"
    )
}

fn list() -> Result<ExitCode, Failure> {
    let mut table = Table::new(["testbed", "nodes"]);
    for (name, nodes) in beds()? {
        let nodes: Vec<String> = nodes.iter().filter(|node| node.has_address()).map(NodeName::to_string).collect();
        table.row([name, nodes.join(" ")]);
    }
    print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the command to stop, and kills it if it does not.
async fn end(child: &mut Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    // It may have ended in the meantime.
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Only returns when that fails.
fn become_it(command: &mut Command) -> Result<ExitCode, Failure> {
    let source = command.exec();
    Err(Failure::Spawn { program: command.get_program().to_string_lossy().into_owned(), source })
}

/// A number from 1 on.
fn up_to(max: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=max as u64)
}

fn cannot_run(command: &tokio::process::Command, source: std::io::Error) -> Failure {
    Failure::Spawn { program: command.as_std().get_program().to_string_lossy().into_owned(), source }
}

/// As shells have it: a signal's number and 128.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl ShapeArgs {
    fn build(self, name: &str) -> Result<Testbed, Failure> {
        let Self { hosts, elements, rate, queue, mark, loss, repeat, ce, delay, reorder, wired, mtu } = self;
        let profile = Profile { rate, queue_bytes: queue, mark_bytes: mark, loss, repeat, ce, delay, reorder, wired };
        let builder = Testbed::builder().name(name).hosts(hosts).elements(elements).mtu(mtu).profile(profile);
        Ok(builder.up()?)
    }
}
