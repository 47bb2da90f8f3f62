//! UCX's benchmark `ucx_perftest` between two processes of this host.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::child::KillOnDrop;

const PROGRAM: &str = "ucx_perftest";
/// Timeout of the start.
const LIMIT: Duration = Duration::from_secs(20);

/// Transport of UCX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    /// The reader maps the memory of the other process.
    Shared,
}

/// Checks that UCX is installed.
///
/// # Errors
/// Returns an error with the package to install.
pub(crate) fn find() -> Result<()> {
    let output = Command::new(PROGRAM).arg("-h").output();
    output.map(drop).with_context(|| format!("there is no {PROGRAM} (Debian: ucx-utils)"))
}

/// Median time in microseconds to read `bytes` bytes of the other process: the shorter of a get, and of a message with
/// an answer of the same length (over TCP a get waits for timers of the other process).
///
/// # Errors
/// Returns the output of the failed program.
pub(crate) fn get_us(transport: Transport, bytes: usize, gets: usize) -> Result<f64> {
    let get = measured(transport, "ucp_get", bytes, gets)?;
    // The program prints half a round trip of message and answer.
    Ok(get.min(2.0 * measured(transport, "tag_lat", bytes, gets)?))
}

fn measured(transport: Transport, test: &str, bytes: usize, count: usize) -> Result<f64> {
    // Port that is currently free, because the program does not report its port.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let command = || {
        let mut command = Command::new(PROGRAM);
        command.env("UCX_TLS", if transport == Transport::Tcp { "tcp,self" } else { "shm,self" });
        command.args(["-p", &port.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let _server = KillOnDrop(command().stdout(Stdio::null()).spawn()?);
    // The program buffers its output, and a test connection would be taken for the client.
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

/// Second field of the line of numbers, below the line of names.
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
    fn median_is_second_field() {
        let said = "Warning\niterations,50.0_percentile_lat,avg_lat\n 500,1101.723,1206.910\n";
        assert_eq!(median(said).expect("a median"), 1101.723);
        assert!(median("iterations,50.0_percentile_lat,avg_lat\n").is_err());
    }
}
