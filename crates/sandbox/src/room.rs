//! A guest in this process: its library, its memory, and the way in and out (`c/room.h`).

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libloading::Library;

use crate::watch::{self, Watch};
use crate::{Host, OpenError, Reason, Trap};

/// The thread is in the guest: it may be pulled out of it.
pub(crate) const GUEST: u32 = 1;
/// The thread is at the host, called by the guest.
pub(crate) const HOST: u32 = 2;

type HostFunction = extern "C" fn(*mut c_void, u32, u32, *const u8, u32, *mut u8, u32, u64) -> u64;

/// The beginning of `struct pc_room`.
#[repr(C)]
pub(crate) struct RawRoom {
    host: HostFunction,
    context: *mut c_void,
    pub(crate) leave: extern "C" fn(*mut RawRoom, u32),
    pub(crate) guard: *mut u8,
    pub(crate) guard_bytes: u64,
    pub(crate) at: usize,
    pub(crate) inside: AtomicU32,
    pub(crate) stop: AtomicU32,
}

type Init = extern "C" fn();
type Open = extern "C" fn(HostFunction) -> *mut RawRoom;
type Close = extern "C" fn(*mut RawRoom);
type Call = extern "C" fn(*mut RawRoom, u32, u32) -> u32;
type Area = extern "C" fn(*mut RawRoom, u32) -> *mut u8;

/// A loaded library.
struct Module {
    open: Open,
    close: Close,
    call: Call,
    area: Area,
    /// Lies behind the functions, and goes last.
    library: Library,
    /// The file of one that is loaded for one room alone.
    _copy: Option<OwnedFd>,
}

/// A guest in it.
pub(crate) struct Room {
    file: PathBuf,
    private: bool,
    module: Module,
    raw: *mut RawRoom,
    area: *mut u8,
    area_bytes: usize,
    watch: Arc<Watch>,
}

// `raw` and `area` belong to this room alone, and the library keeps nothing for a thread between calls.
#[allow(unsafe_code, reason = "the pointers are owned, and no thread's own state outlives a call")]
unsafe impl Send for Room {}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Whose guest a thread is in.
pub(crate) struct Inside {
    pub(crate) room: *mut RawRoom,
    pub(crate) watch: *const Watch,
}

thread_local! {
    /// Whose guest runs in this thread, for signals: one word, so that a signal never finds half of it. Null if none.
    pub(crate) static INSIDE: AtomicPtr<Inside> = const { AtomicPtr::new(ptr::null_mut()) };
}

impl Room {
    /// A room of the library `file`; with a copy of it for this room alone if `private`.
    pub(crate) fn open(file: &Path, private: bool, area_bytes: usize, limit: Duration) -> Result<Self, OpenError> {
        watch::install();
        let module = Module::load(file, private)?;
        let (raw, area) = module.room(area_bytes)?;
        let watch = watch::register(limit);
        Ok(Self { file: file.to_owned(), private, module, raw, area, area_bytes, watch })
    }

    pub(crate) fn restart(&mut self) -> Result<(), OpenError> {
        // A fresh one first: if there is none to be had, this one stays to be dropped.
        let module = if self.private { Some(Module::load(&self.file, true)?) } else { None };
        let (raw, area) = module.as_ref().unwrap_or(&self.module).room(self.area_bytes)?;
        (self.module.close)(self.raw);
        (self.raw, self.area) = (raw, area);
        if let Some(module) = module {
            self.module = module;
        }
        Ok(())
    }

    pub(crate) fn area(&mut self) -> &mut [u8] {
        // SAFETY: the library gave `area_bytes` bytes of this room's memory there, which stays as long as the room, and
        // `&mut self` keeps the guest out meanwhile.
        #[allow(unsafe_code, reason = "the guest's memory is seen as bytes")]
        unsafe {
            std::slice::from_raw_parts_mut(self.area, self.area_bytes)
        }
    }

    #[inline]
    pub(crate) fn enter(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        let mut host: &mut dyn Host = host;
        // SAFETY: `raw` is this room's own, and nothing else looks at these fields between calls.
        #[allow(unsafe_code, reason = "the room is told whom to ask")]
        unsafe {
            (*self.raw).context = (&raw mut host).cast();
        }
        let mut inside = Inside { room: self.raw, watch: Arc::as_ptr(&self.watch) };
        // Only this thread's own signals look there: what is stored before a pointer is there when it is.
        let before = INSIDE.with(|current| {
            let before = current.load(Ordering::Relaxed);
            current.store(&raw mut inside, Ordering::Release);
            before
        });
        self.watch.begin();
        let trap = (self.module.call)(self.raw, entry, argument);
        self.watch.end();
        INSIDE.with(|current| current.store(before, Ordering::Release));
        if trap == 0 {
            return Ok(());
        }
        watch::release();
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "the room says where it was left")]
        let at = unsafe { (*self.raw).at };
        Err(Trap { reason: Reason::from_number(trap), at: self.module.offset(at) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        (self.module.close)(self.raw);
    }
}

/// What the library calls for `pc_host`.
extern "C" fn answer(
    context: *mut c_void,
    op: u32,
    which: u32,
    input: *const u8,
    input_bytes: u32,
    output: *mut u8,
    output_bytes: u32,
    value: u64,
) -> u64 {
    // SAFETY: `context` is what `enter` put there, which waits for this call's end. Input is a copy on the library's
    // stack, output a range of the guest's memory that was checked; a length of 0 may come with any pointer.
    #[allow(unsafe_code, reason = "pointers from the library become slices")]
    unsafe {
        let host = &mut *context.cast::<&mut dyn Host>();
        let input = if input_bytes == 0 { &[] } else { std::slice::from_raw_parts(input, input_bytes as usize) };
        let output =
            if output_bytes == 0 { &mut [] } else { std::slice::from_raw_parts_mut(output, output_bytes as usize) };
        host.call(op, which, input, output, value)
    }
}

impl Module {
    fn load(file: &Path, private: bool) -> Result<Self, OpenError> {
        let copy = if private { Some(copy(file)?) } else { None };
        let name =
            copy.as_ref().map_or_else(|| file.to_owned(), |fd| format!("/proc/self/fd/{}", fd.as_raw_fd()).into());
        // `pc_room_init` writes what all rooms of a library share.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `build` made this file from our own room and a guest. Nothing of a guest in WebAssembly runs while it is
        // loaded; a native one is trusted. The functions are as `c/room.h` and its users define them, and stay as long as
        // the library, which this struct holds.
        #[allow(unsafe_code, reason = "compiled code is loaded and its functions are named")]
        let module = unsafe {
            let library = Library::new(name)?;
            let init: Init = *library.get(b"pc_room_init\0")?;
            init();
            Self {
                open: *library.get(b"pc_room_open\0")?,
                close: *library.get(b"pc_room_close\0")?,
                call: *library.get(b"pc_room_call\0")?,
                area: *library.get(b"pc_room_area\0")?,
                library,
                _copy: copy,
            }
        };
        Ok(module)
    }

    fn room(&self, area_bytes: usize) -> Result<(*mut RawRoom, *mut u8), OpenError> {
        let raw = (self.open)(answer);
        if raw.is_null() {
            return Err(OpenError::Memory);
        }
        let area = (self.area)(raw, area_bytes as u32);
        if area.is_null() {
            (self.close)(raw);
            return Err(OpenError::Area);
        }
        Ok((raw, area))
    }

    /// An address in the library's code, from its beginning.
    fn offset(&self, at: usize) -> u64 {
        // SAFETY: `dladdr` only looks the address up, whatever it is; what it fills in is read if it says so.
        #[allow(unsafe_code, reason = "the loader is asked where the library begins")]
        unsafe {
            let _loaded = &self.library;
            let mut about: libc::Dl_info = std::mem::zeroed();
            if at == 0 || libc::dladdr(at as *const c_void, &raw mut about) == 0 {
                return 0;
            }
            (at - about.dli_fbase as usize) as u64
        }
    }
}

/// The file again, for the loader to take it for another one.
fn copy(file: &Path) -> Result<OwnedFd, OpenError> {
    let bytes = std::fs::read(file)?;
    // SAFETY: the name is a string that ends in 0, and the descriptor is new, so it is ours alone.
    #[allow(unsafe_code, reason = "the call gives a bare descriptor")]
    let memory = unsafe {
        let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = std::fs::File::from(memory);
    std::io::Write::write_all(&mut file, &bytes)?;
    Ok(file.into())
}
