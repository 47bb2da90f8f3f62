//! Guest in a process of its own (`c/child.c`), connected by two pipes with one message at a time.
//!
//! ```text
//! host                              guest
//!   ENTER, area ─────────────────────►
//!        ◄──────────── ASK, input        for each `pc_host`
//!   ANSWER, output ──────────────────►
//!        ◄──────────── DONE, area        or FAULT, or the pipe's end
//! ```
//!
//! The guest may write anything into its pipe: lengths are checked, an invalid message ends the guest, and no wait
//! exceeds the limit of the call.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use crate::time_limit::{self, CpuTimeMeter};
use crate::{Host, INPUT_BYTES_MAX, OUTPUT_BYTES_MAX, OpenError, Trap, TrapReason};

const ENTER: u32 = 1;
const ANSWER: u32 = 2;
const READY: u32 = 3;
const ASK: u32 = 4;
const DONE: u32 = 5;
const FAULT: u32 = 6;
const REFUSED: u32 = 7;
/// Size of `struct message`.
const HEAD: usize = 32;
/// Interval of the checks of the guest's CPU time during a wait.
const POLL: Duration = Duration::from_millis(5);
/// Number of answers after which the CPU time is also checked, because a guest that makes many host calls is never
/// waited for.
const ANSWERS: u32 = 16;
/// Number of consecutive checks (five seconds at least) without CPU time and without an answer after which a guest
/// counts as dead. While the whole machine stands still there are no checks.
const SILENT_CHECKS_MAX: u32 = 1000;

/// Guest process, with the buffer of its shared memory.
#[derive(Debug)]
pub(crate) struct Process {
    file: PathBuf,
    running: Running,
    area: Vec<u8>,
    limit: Duration,
}

#[derive(Debug)]
struct Running {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

/// Time limit of a call.
#[derive(Debug)]
struct CallTime {
    taken: CpuTimeMeter,
    limit: Duration,
}

impl CallTime {
    /// Adds the guest's CPU time since the last check.
    ///
    /// # Errors
    /// If the limit is exceeded.
    fn check(&mut self, spent: Duration) -> Result<(), Trap> {
        if self.taken.update(spent) >= self.limit {
            return Err(Trap { reason: TrapReason::Time, at: 0 });
        }
        Ok(())
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Message {
    kind: u32,
    op: u32,
    which: u32,
    input: u32,
    output: u32,
    error: u32,
    value: u64,
}

impl Message {
    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let words = [self.kind, self.op, self.which, self.input, self.output, self.error];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[24..].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEAD]) -> Self {
        let word = |at: usize| u32::from_ne_bytes(bytes[at * 4..][..4].try_into().expect("4 bytes"));
        let value = u64::from_ne_bytes(bytes[24..].try_into().expect("8 bytes"));
        Self { kind: word(0), op: word(1), which: word(2), input: word(3), output: word(4), error: word(5), value }
    }
}

impl Process {
    pub(crate) fn open(file: &Path, area_bytes: usize, limit: Duration) -> Result<Self, OpenError> {
        let (running, area) = start(file, area_bytes)?;
        Ok(Self { file: file.to_owned(), running, area, limit })
    }

    pub(crate) fn restart(&mut self) -> Result<(), OpenError> {
        (self.running, self.area) = start(&self.file, self.area.len())?;
        Ok(())
    }

    pub(crate) fn area(&mut self) -> &mut [u8] {
        &mut self.area
    }

    pub(crate) fn enter(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        let result = self.call(entry, argument, host);
        if result.is_err() {
            // The process is of no use any more.
            let _ = self.running.child.kill();
        }
        result
    }

    fn call(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        let mut time = CallTime { taken: CpuTimeMeter::from(self.running.spent()), limit: self.limit };
        let message = Message { kind: ENTER, op: entry, which: argument, ..Message::default() };
        self.running.put(&message.bytes(), &self.area)?;
        let (mut input, mut output) = ([0; INPUT_BYTES_MAX], [0; OUTPUT_BYTES_MAX]);
        let mut answered = 0u32;
        loop {
            let message = self.running.message(&mut time)?;
            match message.kind {
                ASK if message.input as usize <= INPUT_BYTES_MAX && message.output as usize <= OUTPUT_BYTES_MAX => {
                    let input = &mut input[..message.input as usize];
                    self.running.get(input, &mut time)?;
                    let output = &mut output[..message.output as usize];
                    output.fill(0);
                    let value = host.call(message.op, message.which, input, output, message.value);
                    let answer = Message { kind: ANSWER, value, ..Message::default() };
                    self.running.put(&answer.bytes(), output)?;
                    answered = answered.wrapping_add(1);
                    if answered.is_multiple_of(ANSWERS) {
                        time.check(self.running.spent())?;
                    }
                }
                DONE => return self.running.get(&mut self.area, &mut time),
                FAULT => return Err(Trap { reason: TrapReason::from_signal(message.op as i32), at: message.value }),
                _ => return Err(Trap { reason: TrapReason::Other, at: 0 }),
            }
        }
    }
}

impl Running {
    fn message(&mut self, time: &mut CallTime) -> Result<Message, Trap> {
        let mut bytes = [0; HEAD];
        self.get(&mut bytes, time)?;
        Ok(Message::from_bytes(&bytes))
    }

    fn put(&mut self, head: &[u8], rest: &[u8]) -> Result<(), Trap> {
        let mut bytes = [0; HEAD + OUTPUT_BYTES_MAX];
        let all = if rest.len() <= OUTPUT_BYTES_MAX {
            let all = &mut bytes[..head.len() + rest.len()];
            all[..head.len()].copy_from_slice(head);
            all[head.len()..].copy_from_slice(rest);
            self.to.write_all(all)
        } else {
            self.to.write_all(head).and_then(|()| self.to.write_all(rest))
        };
        all.map_err(|_| self.exit_trap())
    }

    /// Reads `to` completely, unless the guest exceeds its time limit first.
    fn get(&mut self, to: &mut [u8], time: &mut CallTime) -> Result<(), Trap> {
        let mut done = 0;
        let (mut silent, mut spent_before) = (0, Duration::MAX);
        while done < to.len() {
            if !readable(&self.from, POLL) {
                let spent = self.spent();
                time.check(spent)?;
                silent = if spent == spent_before { silent + 1 } else { 0 };
                spent_before = spent;
                if silent >= SILENT_CHECKS_MAX {
                    return Err(Trap { reason: TrapReason::Time, at: 0 });
                }
                continue;
            }
            match self.from.read(&mut to[done..]) {
                Ok(0) => return Err(self.exit_trap()),
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.exit_trap()),
            }
        }
        Ok(())
    }

    /// CPU time of the process.
    fn spent(&self) -> Duration {
        time_limit::process_time(self.child.id()).unwrap_or_default()
    }

    /// Reason for which the pipe has ended.
    fn exit_trap(&mut self) -> Trap {
        use std::os::unix::process::ExitStatusExt;
        let _ = self.child.kill();
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        // SIGKILL is sent by seccomp for a forbidden system call, or by this host.
        Trap { reason: signal.map_or(TrapReason::Other, TrapReason::from_signal), at: 0 }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(file: &Path, area_bytes: usize) -> Result<(Running, Vec<u8>), OpenError> {
    let mut child = spawn(file)?;
    let to = child.stdin.take().expect("a pipe was asked for");
    let from = child.stdout.take().expect("a pipe was asked for");
    let mut running = Running { child, to, from };
    let ready = running
        .message(&mut CallTime { taken: CpuTimeMeter::from(Duration::ZERO), limit: Duration::MAX })
        .map_err(|_| io::Error::other("the process ended at once"))?;
    match ready.kind {
        READY if ready.output as usize == area_bytes => Ok((running, vec![0; area_bytes])),
        REFUSED => Err(OpenError::Confine(ready.error)),
        _ => Err(OpenError::Area),
    }
}

/// Starts a process from a thread that never ends, because the child dies with the thread that started it; so a killed
/// host leaves no guests behind.
fn spawn(file: &Path) -> io::Result<Child> {
    type SpawnRequest = (PathBuf, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, taken) = mpsc::channel::<SpawnRequest>();
        let work = move || {
            for (file, answer) in taken {
                let child = Command::new(file)
                    .env_clear()
                    .current_dir("/")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn();
                let _ = answer.send(child);
            }
        };
        std::thread::Builder::new().name("handler-spawn".into()).spawn(work).expect("a thread to start processes");
        orders
    });
    let (answer, child) = mpsc::channel();
    let ended = |_| io::Error::other("the spawner thread has ended");
    spawner.send((file.to_owned(), answer)).map_err(|_| ended(()))?;
    child.recv().map_err(|_| ended(()))?
}

/// Whether the pipe becomes readable within the given time.
fn readable(from: &ChildStdout, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the array has one entry, as given, and its descriptor is open.
    #[allow(unsafe_code, reason = "the call is the kernel's")]
    let count = unsafe { libc::poll(&raw mut poll, 1, within.as_millis() as libc::c_int) };
    count > 0
}
