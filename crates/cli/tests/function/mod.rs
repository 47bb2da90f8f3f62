//! Tests of `pathcall function`: captures in, captures out, one line for each error.

mod faults;
mod mistakes;
mod run;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pathcall_netfn::handler::SandboxKind;
use pcap_file::pcap::{PcapReader, PcapWriter, RawPcapPacket};

/// True if handlers can be compiled and sandboxed here; prints a note if not.
fn compilers() -> bool {
    let best = SandboxKind::best();
    let found = matches!(best, Ok(SandboxKind::Wasm));
    if !found {
        assert!(std::env::var_os("PATHCALL_ROOT_TESTS").is_none(), "missing compilers for handlers: {best:?}");
        println!("skipped: missing compilers for handlers: {best:?}");
    }
    found
}

/// Path of one of the project's functions or captures.
fn functions(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../functions")
        .join(name)
        .canonicalize()
        .expect(name)
        .display()
        .to_string()
}

/// Empty folder of one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("function").join(name);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{}: {error}", folder.display()),
        _ => {}
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn pathcall(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(crate::PATHCALL);
    command.arg("function").args(args).current_dir(folder).stdin(Stdio::null());
    command.env("PATHCALL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.output().expect("the command is built")
}

/// Standard output of a successful command.
#[track_caller]
fn printed(folder: &Path, args: &[&str]) -> String {
    let output = pathcall(folder, args);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}: {stderr}{stdout}");
    stdout.into_owned()
}

/// Packets of a capture, with their times.
fn packets(file: &Path) -> Vec<(u32, u32, Vec<u8>)> {
    let mut reader = PcapReader::new(File::open(file).expect("a capture")).expect("pcap");
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.expect("a packet");
        packets.push((packet.ts_sec, packet.ts_frac, packet.data.into_owned()));
    }
    packets
}

fn write(file: &Path, packets: &[(u32, u32, Vec<u8>)]) {
    let mut writer = PcapWriter::new(File::create(file).expect("a file")).expect("pcap");
    for (ts_sec, ts_frac, bytes) in packets {
        let length = bytes.len() as u32;
        let packet = RawPcapPacket {
            ts_sec: *ts_sec,
            ts_frac: *ts_frac,
            incl_len: length,
            orig_len: length,
            data: bytes.into(),
        };
        writer.write_raw_packet(&packet).expect("written");
    }
}
