//! Guest in this process: its library, its memory, and the entry and exit of the thread (`c/sandbox.h`).

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libloading::Library;

use crate::time_limit::{self, Watch};
use crate::{Host, OpenError, Trap, TrapReason};

/// State of a thread in the guest, from which a signal may take it out.
pub(crate) const GUEST: u32 = 1;
/// State of a thread in the host, called by the guest.
pub(crate) const HOST: u32 = 2;

type HostFunction = extern "C" fn(*mut c_void, u32, u32, *const u8, u32, *mut u8, u32, u64) -> u64;

/// First fields of `struct pc_sandbox`.
#[repr(C)]
pub(crate) struct RawSandbox {
    host: HostFunction,
    context: *mut c_void,
    pub(crate) leave: extern "C" fn(*mut RawSandbox, u32),
    pub(crate) guard: *mut u8,
    pub(crate) guard_bytes: u64,
    pub(crate) at: usize,
    pub(crate) inside: AtomicU32,
    pub(crate) stop: AtomicU32,
}

type Init = extern "C" fn();
type Open = extern "C" fn(HostFunction) -> *mut RawSandbox;
type Close = extern "C" fn(*mut RawSandbox);
type Call = extern "C" fn(*mut RawSandbox, u32, u32) -> u32;
type Area = extern "C" fn(*mut RawSandbox, u32) -> *mut u8;

/// Loaded library.
struct Module {
    open: Open,
    close: Close,
    call: Call,
    area: Area,
    /// Owner of the functions, dropped last.
    library: Library,
    /// File of a library that is loaded for one guest only.
    _copy: Option<OwnedFd>,
}

/// Guest in this process.
pub(crate) struct InProcessGuest {
    file: PathBuf,
    private: bool,
    module: Module,
    raw: *mut RawSandbox,
    area: *mut u8,
    area_bytes: usize,
    watch: Arc<Watch>,
}

// `raw` and `area` belong to this guest only, and the library keeps no thread-local state between calls.
#[allow(unsafe_code, reason = "the pointers are owned, and no thread's own state outlives a call")]
unsafe impl Send for InProcessGuest {}

impl std::fmt::Debug for InProcessGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcessGuest").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Guest that a thread is in.
pub(crate) struct CurrentGuest {
    pub(crate) sandbox: *mut RawSandbox,
    pub(crate) watch: *const Watch,
}

thread_local! {
    /// Guest that runs in this thread, for signal handlers: one word, so that a handler never sees a partial update.
    /// Null if none.
    pub(crate) static CURRENT_GUEST: AtomicPtr<CurrentGuest> = const { AtomicPtr::new(ptr::null_mut()) };
}

impl InProcessGuest {
    /// Opens a guest of the library `file`, with a private copy of the library if `private`.
    pub(crate) fn open(file: &Path, private: bool, area_bytes: usize, limit: Duration) -> Result<Self, OpenError> {
        time_limit::install();
        let module = Module::load(file, private)?;
        let (raw, area) = module.open_sandbox(area_bytes)?;
        let watch = time_limit::register(limit);
        Ok(Self { file: file.to_owned(), private, module, raw, area, area_bytes, watch })
    }

    pub(crate) fn restart(&mut self) -> Result<(), OpenError> {
        // The new library is loaded first: if that fails, this one is kept.
        let module = if self.private { Some(Module::load(&self.file, true)?) } else { None };
        let (raw, area) = module.as_ref().unwrap_or(&self.module).open_sandbox(self.area_bytes)?;
        (self.module.close)(self.raw);
        (self.raw, self.area) = (raw, area);
        if let Some(module) = module {
            self.module = module;
        }
        Ok(())
    }

    pub(crate) fn area(&mut self) -> &mut [u8] {
        // SAFETY: the library returned `area_bytes` bytes of this guest's memory, which live as long as the guest, and
        // `&mut self` excludes calls meanwhile.
        #[allow(unsafe_code, reason = "the guest's memory is seen as bytes")]
        unsafe {
            std::slice::from_raw_parts_mut(self.area, self.area_bytes)
        }
    }

    #[inline]
    pub(crate) fn enter(&mut self, entry: u32, argument: u32, host: &mut dyn Host) -> Result<(), Trap> {
        let mut host: &mut dyn Host = host;
        // SAFETY: `raw` belongs to this guest, and nobody else accesses these fields between calls.
        #[allow(unsafe_code, reason = "sets the host of the call")]
        unsafe {
            (*self.raw).context = (&raw mut host).cast();
        }
        let mut inside = CurrentGuest { sandbox: self.raw, watch: Arc::as_ptr(&self.watch) };
        // Only signal handlers of this thread read the pointer, and they see what was stored before it.
        let before = CURRENT_GUEST.with(|current| {
            let before = current.load(Ordering::Relaxed);
            current.store(&raw mut inside, Ordering::Release);
            before
        });
        self.watch.begin();
        let trap = (self.module.call)(self.raw, entry, argument);
        self.watch.end();
        CURRENT_GUEST.with(|current| current.store(before, Ordering::Release));
        if trap == 0 {
            return Ok(());
        }
        time_limit::restore_mask();
        // SAFETY: see above.
        #[allow(unsafe_code, reason = "reads the address of the trap")]
        let at = unsafe { (*self.raw).at };
        Err(Trap { reason: TrapReason::from_number(trap), at: self.module.offset(at) })
    }
}

impl Drop for InProcessGuest {
    fn drop(&mut self) {
        (self.module.close)(self.raw);
    }
}

/// Callback of the library for `pc_host`.
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
    // SAFETY: `context` was set by `enter`, which waits for the end of this call. Input is a copy on the library's
    // stack, output a checked range of the guest's memory; a pointer with length 0 may be arbitrary.
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
        // `pc_sandbox_init` writes data shared by all guests of a library.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: `build` made this file from our own C and a guest's. No code of a WebAssembly guest runs at load
        // time; a native guest is trusted. The functions have the signatures of `c/sandbox.h`, and live as long as the
        // library, which this struct owns.
        #[allow(unsafe_code, reason = "compiled code is loaded and its functions are named")]
        let module = unsafe {
            let library = Library::new(name)?;
            let init: Init = *library.get(b"pc_sandbox_init\0")?;
            init();
            Self {
                open: *library.get(b"pc_sandbox_open\0")?,
                close: *library.get(b"pc_sandbox_close\0")?,
                call: *library.get(b"pc_sandbox_call\0")?,
                area: *library.get(b"pc_sandbox_area\0")?,
                library,
                _copy: copy,
            }
        };
        Ok(module)
    }

    fn open_sandbox(&self, area_bytes: usize) -> Result<(*mut RawSandbox, *mut u8), OpenError> {
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

    /// Offset of an address in the library's code.
    fn offset(&self, at: usize) -> u64 {
        // SAFETY: `dladdr` accepts any address; its result is read only if it succeeds.
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

/// In-memory copy of the file, which the loader takes for another file.
fn copy(file: &Path) -> Result<OwnedFd, OpenError> {
    let bytes = std::fs::read(file)?;
    // SAFETY: the name is NUL-terminated, and the new descriptor has no other owner.
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
