//! Tests of shared windows: names and bounds, between threads, and between processes of which one is killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pathcall_test_support::HANG;
use pathcall_test_support::process::Process;

use super::*;

/// Environment variable of another process: the window's name.
const WINDOW: &str = "PATHCALL_SHM_TEST_WINDOW";
/// Environment variable of a process that is killed while it holds the lock.
const LOCKS: &str = "PATHCALL_SHM_TEST_LOCKS";
/// Length of the windows of killed processes: long enough that most are killed in a write.
const LEN: usize = 64 << 10;

/// Unique name of a window.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn create(name: &str, len: usize) -> SharedWindow {
    SharedWindow::create(name, len).expect("memory").timeout(HANG)
}

fn open(name: &str) -> SharedWindow {
    SharedWindow::open(name).expect("the window exists").timeout(HANG)
}

/// Reads equal bytes from the whole window; returns one.
fn read_equal_bytes(window: &SharedWindow, buffer: &mut [u8]) -> u8 {
    window.read(0, buffer).expect("the lock becomes free");
    assert!(buffer.iter().all(|byte| *byte == buffer[0]), "a part of a write");
    buffer[0]
}

/// Number of mappings of a window's memory in this process.
fn mappings(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    maps.lines().filter(|line| line.contains(&format!("pathcall-window-{name} "))).count()
}

#[test]
fn processes_of_window_see_writes_of_each_other() {
    let name = name();
    let (owner, opener, third) = (create(&name, 13), open(&name), open(&name));
    assert_eq!((opener.len(), opener.name(), third.len()), (13, &name[..], 13));
    owner.write(3, b"abc").expect("free");
    opener.write(5, b"defgh").expect("free");
    for window in [&owner, &opener, &third] {
        let mut got = [0; 13];
        window.read(0, &mut got).expect("free");
        assert_eq!(&got, b"\0\0\0abdefgh\0\0\0");
        assert!(!window.owner_has_ended());
    }
    assert_eq!(mappings(&name), 3);
    drop((owner, opener));
    assert!(third.owner_has_ended());
    third.write(0, b"x").expect("free");
    let mut got = [0; 4];
    third.read(0, &mut got).expect("free");
    assert_eq!(&got, b"x\0\0a");
    drop(third);
    assert_eq!(mappings(&name), 0);
}

#[test]
fn invalid_window_is_refused() {
    for name in [String::new(), "n".repeat(NAME_MAX + 1)] {
        assert!(matches!(SharedWindow::create(&name, 1), Err(SharedWindowError::Name { .. })));
        assert!(matches!(SharedWindow::open(&name), Err(SharedWindowError::Name { .. })));
    }
    for len in [0, LEN_MAX + 1, usize::MAX] {
        assert!(matches!(SharedWindow::create(&name(), len), Err(SharedWindowError::Length { .. })), "{len}");
    }
    let name = "n".repeat(NAME_MAX);
    let owner = create(&name, 1);
    assert!(matches!(SharedWindow::create(&name, 1), Err(SharedWindowError::Taken { .. })));
    drop(open(&name));
    drop(owner);
    let error = SharedWindow::open(&name).expect_err("the owner has ended").to_string();
    assert!(error.starts_with("no process has created shared window"), "{error}");
    drop(create(&name, 2));
}

#[test]
fn access_outside_window_is_refused() {
    let window = create(&name(), 13);
    for (at, len) in [(0, 14), (13, 1), (14, 0), (usize::MAX, 1), (usize::MAX - 3, 8)] {
        let mut bytes = vec![0; len];
        assert!(matches!(window.read(at, &mut bytes), Err(SharedWindowError::Outside { .. })), "{at} {len}");
        assert!(matches!(window.write(at, &bytes), Err(SharedWindowError::Outside { .. })), "{at} {len}");
    }
    window.read(13, &mut []).expect("free");
    window.write(13, &[]).expect("free");
}

#[test]
fn foreign_owner_is_refused() {
    let name = name();
    let listener = PeerListener::bind(format!("pathcall-window-{name}").as_bytes()).expect("a free name");
    let (_map, memory) = WindowMap::create("other", 8).expect("memory");
    let answer = |message: &[u8]| {
        thread::scope(|scope| {
            let opened = scope.spawn(|| SharedWindow::open(&name).map(drop));
            let peer = pathcall_test_support::process::until("a connection", || listener.accept().ok());
            if !message.is_empty() {
                peer.send_memory(message, memory.as_fd()).expect("open");
            }
            drop(peer);
            opened.join().expect("no panic")
        })
    };
    let welcome = |holder, len| Welcome { holder, len }.to_bytes();
    let mut other_version = welcome(2, 8);
    other_version[7] = b'2';
    for message in [&[][..], b"short", &other_version, &welcome(OWNER, 8), &welcome(2, 0), &welcome(2, LEN_MAX + 1)] {
        let error = answer(message).expect_err("not the message of an owner");
        assert!(matches!(error, SharedWindowError::Refused { .. }), "{error}");
    }
    let error = answer(&welcome(2, 9)).expect_err("another length");
    assert!(matches!(error, SharedWindowError::Memory { .. }), "{error}");
    answer(&welcome(2, 8)).expect("as an owner");
}

#[test]
fn stopped_holder_of_lock_is_reported() {
    let name = name();
    let (owner, opener) = (create(&name, 8), open(&name).timeout(Duration::from_millis(1)));
    let locked = owner.memory.try_lock(OWNER, 4711).expect("free");
    let reported = |result: Result<(), SharedWindowError>| {
        let error = result.expect_err("locked").to_string();
        assert!(error.starts_with("process 4711 holds the lock of shared window"), "{error}");
    };
    reported(opener.write(0, b"x"));
    reported(opener.read(0, &mut [0]));
    owner.memory.write(locked, 0, b"y");
    let mut got = [0];
    opener.read(0, &mut got).expect("free");
    assert_eq!(&got, b"y");
}

#[test]
fn waiting_process_gets_lock_before_busy_one() {
    let name = name();
    let (owner, opener) = (create(&name, 8), open(&name));
    let locked = owner.memory.try_lock(OWNER, 1).expect("free");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| opener.write(0, b"w"));
        pathcall_test_support::process::until("a waiting thread", || owner.memory.is_wanted().then_some(()));
        owner.memory.write(locked, 0, b"o");
        waiting.join().expect("no panic").expect("the lock becomes free");
    });
    assert!(!owner.memory.is_wanted());
    // One that has ended while it waited does not stop others.
    owner.memory.set_wanted(true);
    owner.write(1, b"o").expect("free");
    assert!(!owner.memory.is_wanted());
    let mut got = [0; 2];
    owner.read(0, &mut got).expect("free");
    assert_eq!(&got, b"wo");
}

#[test]
fn busy_writer_does_not_starve_others() {
    let name = name();
    let (owner, opener) = (create(&name, LEN), open(&name));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                owner.write(0, &[1; LEN]).expect("the lock becomes free");
            }
        });
        for value in 2..10 {
            opener.write(0, &[value; LEN]).expect("the lock becomes free");
            read_equal_bytes(&opener, &mut vec![0; LEN]);
        }
        done.store(true, Ordering::Release);
        busy.join().expect("no panic");
    });
}

#[test]
fn threads_see_writes_wholly() {
    let name = name();
    let (owner, opener) = (create(&name, 1001), open(&name));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [&owner, &opener].map(|window| {
            let done = &done;
            scope.spawn(move || {
                let mut buffer = vec![0; 1001];
                while !done.load(Ordering::Acquire) {
                    read_equal_bytes(window, &mut buffer);
                }
                read_equal_bytes(window, &mut buffer)
            })
        });
        let writers = [(&owner, 1), (&opener, 2)].map(|(window, first)| {
            scope.spawn(move || {
                (first..=200).step_by(2).for_each(|value| window.write(0, &[value; 1001]).expect("free"))
            })
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        done.store(true, Ordering::Release);
        let last = readers.map(|reader| reader.join().expect("no part of a write"));
        assert!(last[0] == last[1] && [199, 200].contains(&last[0]), "{last:?}");
    });
}

/// Starts a test of this file as another process, and waits until it is ready: in the first round, until it
/// has the lock.
fn start(test: &str, window: &str, round: u32) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args([&format!("window::tests::{test}"), "--exact", "--nocapture"]).env(WINDOW, window);
    if round == 0 {
        command.env(LOCKS, "");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("process starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "is ready"), "{test} has ended");
    Process(child)
}

fn print(word: &str) {
    println!("\nis {word}");
    std::io::stdout().flush().expect("standard output is readable");
}

fn write_until_killed(window: &SharedWindow) {
    if std::env::var_os(LOCKS).is_some() {
        let _locked = window.lock().expect("the lock becomes free");
        print("ready");
        thread::sleep(HANG);
    }
    print("ready");
    for value in (0..=u8::MAX).cycle() {
        window.write(0, &[value; LEN]).expect("the lock becomes free");
    }
}

/// Process that opens a window, and writes until it is killed.
#[test]
fn opener_process() {
    if let Ok(name) = std::env::var(WINDOW) {
        write_until_killed(&open(&name));
    }
}

/// Process that creates a window, and writes until it is killed.
#[test]
fn owner_process() {
    if let Ok(name) = std::env::var(WINDOW) {
        write_until_killed(&create(&name, LEN));
    }
}

/// Kills a process that holds the lock or writes, after some reads: both windows go on.
fn kill_during_write(windows: [&SharedWindow; 2], writer: Process, round: u32) {
    let mut buffer = vec![0; LEN];
    for _ in 0..round {
        read_equal_bytes(windows[0], &mut buffer);
    }
    // After a read, the process may still wait for the lock.
    thread::sleep(Duration::from_micros(u64::from(round) * 190));
    drop(writer);
    let last = read_equal_bytes(windows[0], &mut buffer);
    windows[1].write(0, &[last.wrapping_add(1); LEN]).expect("the lock becomes free");
    assert_eq!(read_equal_bytes(windows[0], &mut buffer), last.wrapping_add(1));
}

#[test]
fn window_survives_kill_of_opener_during_write() {
    let name = name();
    let (owner, opener) = (create(&name, LEN), open(&name));
    for round in 0..12 {
        let writer = start("opener_process", &name, round);
        kill_during_write(if round % 2 == 0 { [&owner, &opener] } else { [&opener, &owner] }, writer, round);
    }
}

#[test]
fn window_survives_kill_of_owner_during_write() {
    for round in 0..8 {
        let name = name();
        let owner = start("owner_process", &name, round);
        let (one, other) = (open(&name), open(&name));
        kill_during_write([&one, &other], owner, round);
        assert!(one.owner_has_ended());
        assert!(matches!(SharedWindow::open(&name), Err(SharedWindowError::Unknown { .. })));
    }
}

/// Process of another user, which is refused by itself and by the owner.
#[test]
fn other_user_process() {
    let Ok(name) = std::env::var(WINDOW) else { return };
    let error = SharedWindow::open(&name).expect_err("another user").to_string();
    let owner = MemoryPeer::connect(format!("pathcall-window-{name}").as_bytes()).expect("the owner listens");
    wait_readable(owner.as_fd(), Instant::now() + HANG).expect("the owner answers");
    let refused = owner.receive_memory::<{ Welcome::BYTES }>().expect_err("no memory").kind();
    print(&format!("{error}, {refused:?}"));
}

#[test]
fn other_user_is_refused() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let name = name();
    let _owner = create(&name, 8);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["window::tests::other_user_process", "--exact", "--nocapture"]).env(WINDOW, &name);
    // A folder of this program may be closed to other users.
    let Ok(output) = command.uid(65534).gid(65534).output() else { return };
    let output = String::from_utf8_lossy(&output.stdout);
    assert!(output.contains("belongs to another user: start both processes as one user, UnexpectedEof"), "{output}");
}
