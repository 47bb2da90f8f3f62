//! UCX's own measure, `ucx_perftest`, between two processes of this host.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::killed::Killed;

const PROGRAM: &str = "ucx_perftest";
/// Longer than it takes to start.
const LIMIT: Duration = Duration::from_secs(20);

/// What UCX carries bytes by, here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    /// The getter reads the other process's memory itself.
    Shared,
}

/// Whether it is there.
///
/// # Errors
/// Where it is not: what to install.
pub(crate) fn find() -> Result<()> {
    let output = Command::new(PROGRAM).arg("-h").output();
    output.map(drop).with_context(|| format!("there is no {PROGRAM} (Debian: ucx-utils)"))
}

/// Microseconds until so many bytes of the other process are here, the median: by a get, or, if that is sooner, by a
/// message that is answered by one as long (by TCP a get waits for the other process's timers).
///
/// # Errors
/// What the program says when it fails.
pub(crate) fn get_us(transport: Transport, bytes: usize, gets: usize) -> Result<f64> {
    let get = measured(transport, "ucp_get", bytes, gets)?;
    // Of a message and its answer the program says half.
    Ok(get.min(2.0 * measured(transport, "tag_lat", bytes, gets)?))
}

fn measured(transport: Transport, test: &str, bytes: usize, count: usize) -> Result<f64> {
    // Free now: the program can't be asked which one it took.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.env("UCX_TLS", if transport == Transport::Tcp { "tcp,self" } else { "shm,self" });
        command.args(["-p", &port.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let _server = Killed(command().stdout(Stdio::null()).spawn()?);
    // What it says of that comes when its output is full, and a connection to see would be the one that it takes.
    let (began, listens) = (Instant::now(), format!(":{port:04X} 00000000:0000 0A"));
    while !std::fs::read_to_string("/proc/net/tcp")?.contains(&listens) {
        ensure!(began.elapsed() < LIMIT, "{PROGRAM} does not listen");
        std::thread::yield_now();
    }
    let mut client = command();
    client.args(["127.0.0.1", "-t", test, "-f", "-v", "-s", &bytes.to_string()]);
    let output = client.args(["-n", &count.to_string(), "-w", &(count / 10).to_string()]).output()?;
    ensure!(output.status.success(), "{PROGRAM}: {}", String::from_utf8_lossy(&output.stderr));
    median(&String::from_utf8_lossy(&output.stdout))
}

/// The second field of the line of numbers, below that of their names.
fn median(said: &str) -> Result<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("iterations,50.0_percentile_lat,"));
    let numbers = lines.nth(1).and_then(|line| line.split(',').nth(1));
    let median = numbers.with_context(|| format!("expected a line of numbers, got {said}"))?;
    Ok(median.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_second_number() {
        let said = "Warning\niterations,50.0_percentile_lat,avg_lat\n 500,1101.723,1206.910\n";
        assert_eq!(median(said).expect("it is there"), 1101.723);
        assert!(median("iterations,50.0_percentile_lat,avg_lat\n").is_err());
    }
}
