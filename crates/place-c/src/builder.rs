//! Builder of a context: three model files and the registered functions, devices, memory and clocks (LEO Table II).

use std::ffi::{c_char, c_void};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_place::context::Builder;
use pathcall_place::context::comm::InProcess;
use pathcall_place::context::remote::Remote;
use pathcall_place::device::discover::{DeviceChoice, open};
use pathcall_place::device::{AnswerLength, Kernel, KernelTable, TaskCode, WorkItemCount};
use pathcall_place::{Application, Hardware, SelectionStrategy};

use crate::PATHCALL_PLACE_ACC;
use crate::args::{elements, opaque, owned, role, text, text_or_none};
use crate::call_gate::CallGate;
use crate::context::pathcall_place_context;
use crate::error::{Error, PATHCALL_PLACE_OK, code, pointer};
use crate::functions::{
    self, CallbackMemory, UserPointer, pathcall_place_clock, pathcall_place_function, pathcall_place_next_function,
    pathcall_place_read_function, pathcall_place_write_function,
};

/// Kernel language OpenCL C.
pub const PATHCALL_PLACE_OPENCL: u32 = 0;
/// Kernel language CUDA C++.
pub const PATHCALL_PLACE_CUDA: u32 = 1;
/// Answer length equal to the request's.
pub const PATHCALL_PLACE_AS_INPUT: i64 = -1;
/// Answer length that the kernel sets.
pub const PATHCALL_PLACE_ANY: i64 = -2;

/// Builder of a context: collects everything registered before `pathcall_place_init`.
pub struct pathcall_place_builder {
    /// `None` after a change has failed.
    builder: Option<Builder>,
    gate: CallGate,
}

/// Bytes in the caller's memory.
#[repr(C)]
pub struct pathcall_place_bytes {
    /// First byte.
    pub bytes: *const u8,
    /// Number of bytes.
    pub count: usize,
}

/// Kernel: source text that a device compiles.
#[repr(C)]
pub struct pathcall_place_kernel {
    /// `PATHCALL_PLACE_OPENCL` or `PATHCALL_PLACE_CUDA`.
    pub language: u32,
    /// Work items per group.
    pub group: u32,
    /// Source text.
    pub source: *const c_char,
    /// Name of the entry function.
    pub entry: *const c_char,
    /// Compiler options; null: none.
    pub options: *const c_char,
    /// Request bytes per work item; 0: `items` work items.
    pub bytes_per_item: usize,
    /// Number of work items if `bytes_per_item` is 0.
    pub items: usize,
    /// Length of an answer in bytes, `PATHCALL_PLACE_AS_INPUT` or `PATHCALL_PLACE_ANY`.
    pub answer_bytes: i64,
    /// Tables to be copied to the device before the first request.
    pub tables: *const pathcall_place_bytes,
    /// Number of tables.
    pub tables_count: usize,
}

/// Creates a builder from three YAML files: the application and the hardware of both hosts. Null on failure; the error
/// text states the mistake and its line. `pathcall_place_init` or `pathcall_place_builder_free` frees the builder.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_builder_new(
    application: *const c_char,
    requester: *const c_char,
    responder: *const c_char,
) -> *mut pathcall_place_builder {
    pointer(|| {
        let (name, text) = file(application, "application")?;
        let application = Application::parse(&name, &text).map_err(Error::failed)?;
        let hardware = |path, what: &str| {
            let (name, text) = file(path, what)?;
            Hardware::parse(&name, &text).map_err(Error::failed)
        };
        let builder = Builder::new(application, hardware(requester, "requester")?, hardware(responder, "responder")?);
        Ok(Box::into_raw(Box::new(pathcall_place_builder { builder: Some(builder), gate: CallGate::default() })))
    })
}

/// Frees a builder that was not passed to `pathcall_place_init`. A null pointer is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_builder_free(builder: *mut pathcall_place_builder) {
    code(|| {
        if !builder.is_null() {
            opaque(builder, "builder")?.gate.close()?;
            drop(owned(builder, "builder")?);
        }
        Ok(PATHCALL_PLACE_OK)
    });
}

/// Sets the path selection strategy: `leo` (default), `all-cpu`, `all-acc` and others.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_strategy(builder: *mut pathcall_place_builder, name: *const c_char) -> i32 {
    change(builder, || {
        let name = text(name, "name")?;
        let names = || SelectionStrategy::NAMES.map(|(name, _)| name).join(", ");
        let strategy = SelectionStrategy::named(name)
            .ok_or_else(|| Error::unknown(format!("unknown strategy `{name}`: expected one of {}", names())))?;
        Ok(move |builder: Builder| builder.strategy(strategy))
    })
}

/// Assigns a device to a role: `cpu:2`, `opencl:0`, `cuda:0`, `emulated:per-job=10us,slots=2`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_device(builder: *mut pathcall_place_builder, of: u32, device: *const c_char) -> i32 {
    change(builder, || {
        let (of, choice) = (role(of)?, text(device, "device")?);
        let choice: DeviceChoice = choice.parse().map_err(Error::unknown)?;
        let device = open(&choice).map_err(Error::failed)?;
        Ok(move |builder: Builder| builder.device(of, device))
    })
}

/// Registers a communication function, which carries messages: `itself` (this context is requester and responder),
/// `udp:HERE` (responder) or `udp:HERE,SERVER` (requester), with addresses such as `127.0.0.1:7000`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_comm_func(
    builder: *mut pathcall_place_builder,
    what: *const c_char,
    name: *const c_char,
    of: u32,
) -> i32 {
    change(builder, || {
        let (what, name, of) = (text(what, "what")?, text(name, "name")?.to_owned(), role(of)?);
        let invalid = || {
            let expected = "expected itself, udp:ADDRESS:PORT or udp:ADDRESS:PORT,ADDRESS:PORT";
            Error::invalid(format!("invalid communication function `{what}`: {expected}"))
        };
        let remote = match what.strip_prefix("udp:") {
            Some(addresses) => {
                let mut addresses = addresses.split(',').map(|address| address.parse().map_err(|_| invalid()));
                let here = addresses.next().ok_or_else(invalid)??;
                let server = addresses.next().transpose()?;
                Some(Remote::bind(here, server).map_err(Error::failed)?)
            }
            None if what == "itself" => None,
            None => return Err(invalid()),
        };
        Ok(move |builder: Builder| match remote {
            Some(remote) => builder.reg_comm_func(remote, &name, of),
            None => builder.reg_comm_func(InProcess::itself(), &name, of),
        })
    })
}

/// Registers `count` bytes of memory that the other side can read and write by this name, through these functions.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_mem_func(
    builder: *mut pathcall_place_builder,
    read: pathcall_place_read_function,
    write: pathcall_place_write_function,
    user: *mut c_void,
    count: usize,
    name: *const c_char,
    of: u32,
) -> i32 {
    register(builder, |gate| {
        let (Some(read), Some(write)) = (read, write) else { return Err(Error::invalid("a function is null")) };
        let (name, of) = (text(name, "name")?.to_owned(), role(of)?);
        let memory = Arc::new(CallbackMemory { bytes: count, read, write, user: UserPointer::new(user, gate) });
        Ok(move |builder: Builder| builder.reg_mem_func(memory, &name, of))
    })
}

/// Registers a clock, named `cpu` or `nic`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_ts_func(
    builder: *mut pathcall_place_builder,
    clock: pathcall_place_clock,
    user: *mut c_void,
    name: *const c_char,
) -> i32 {
    register(builder, |gate| {
        let clock = clock.ok_or_else(|| Error::invalid("the function is null"))?;
        let clock = functions::clock(clock, UserPointer::new(user, gate));
        let name = text(name, "name")?.to_owned();
        Ok(move |builder: Builder| builder.reg_ts_func(clock, &name))
    })
}

/// Registers a host function that runs a task on a role. `answer_max`: maximum bytes of an answer, if an answer can be
/// longer than its request.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_app_func(
    builder: *mut pathcall_place_builder,
    function: pathcall_place_function,
    user: *mut c_void,
    task: *const c_char,
    of: u32,
    answer_max: usize,
) -> i32 {
    register(builder, |gate| {
        let function = function.ok_or_else(|| Error::invalid("the function is null"))?;
        let (task, of) = (text(task, "task")?.to_owned(), role(of)?);
        let code = functions::code(function, UserPointer::new(user, gate));
        Ok(move |builder: Builder| builder.reg_app_func(code, &task, of, answer_max))
    })
}

/// Registers a kernel that runs a task on accelerator 0. The kernel is copied.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_app_kernel(
    builder: *mut pathcall_place_builder,
    kernel: *const pathcall_place_kernel,
    task: *const c_char,
    answer_max: usize,
) -> i32 {
    pathcall_place_reg_app_kernel_of(builder, kernel, task, PATHCALL_PLACE_ACC, answer_max)
}

/// Registers a kernel that runs a task on the device of a role. The kernel is copied.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_app_kernel_of(
    builder: *mut pathcall_place_builder,
    kernel: *const pathcall_place_kernel,
    task: *const c_char,
    of: u32,
    answer_max: usize,
) -> i32 {
    change(builder, || {
        let (kernel, of) = (elements(kernel, 1, "kernel")?, role(of)?);
        let (code, task) = (kernel_of(&kernel[0])?, text(task, "task")?.to_owned());
        Ok(move |builder: Builder| builder.reg_app_func(code, &task, of, answer_max))
    })
}

/// Registers the function that writes the messages of later trips, of at most `message_max` bytes, for a request type
/// with several trips. Without such a function, each message is the answer of the trip before.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_next(
    builder: *mut pathcall_place_builder,
    function: pathcall_place_next_function,
    user: *mut c_void,
    kind: *const c_char,
    message_max: usize,
) -> i32 {
    register(builder, |gate| {
        let function = function.ok_or_else(|| Error::invalid("the function is null"))?;
        let kind = text(kind, "kind")?.to_owned();
        if message_max > pathcall_place::device::MESSAGE_MAX {
            return Err(Error {
                code: crate::PATHCALL_PLACE_TOO_LONG,
                text: format!("message_max of {message_max} bytes is too large"),
            });
        }
        let next = functions::next(function, UserPointer::new(user, gate), message_max);
        Ok(move |builder: Builder| builder.next(&kind, next))
    })
}

/// Adds a sample request of a task, which is copied. `pathcall_place_init` runs the sample on all devices, whose answers
/// must be equal, and uses the measured times where the application's file has none.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_sample(
    builder: *mut pathcall_place_builder,
    task: *const c_char,
    request: *const u8,
    request_bytes: usize,
) -> i32 {
    change(builder, || {
        let (task, request) = (text(task, "task")?.to_owned(), elements(request, request_bytes, "request")?);
        let request = Bytes::copy_from_slice(request);
        Ok(move |builder: Builder| builder.sample(&task, request))
    })
}

/// Reports requests that arrive as events, for `pathcall_place_handle`. By default, requests are handled immediately.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_requests_as_events(builder: *mut pathcall_place_builder) -> i32 {
    change(builder, || Ok(|builder: Builder| builder.handles_itself(false)))
}

/// Opens an admin socket at this path, a new file, for `pathcall place explain` and `pathcall place status`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_admin_socket(builder: *mut pathcall_place_builder, path: *const c_char) -> i32 {
    change(builder, || {
        let path = text(path, "path")?.to_owned();
        Ok(move |builder: Builder| builder.admin_socket(Path::new(&path)))
    })
}

/// Loads functions, runs the samples, starts communication. The builder is freed in any case. Returns null on failure.
/// `pathcall_place_free` frees the context.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_init(builder: *mut pathcall_place_builder) -> *mut pathcall_place_context {
    pointer(|| {
        let pathcall_place_builder { builder, gate } = *owned(builder, "builder")?;
        let builder = builder.ok_or_else(|| Error::failed("an earlier call has failed"))?;
        match builder.init() {
            Ok(context) => Ok(Box::into_raw(Box::new(pathcall_place_context::new(context, gate)))),
            Err(error) => {
                // A device may still be running a sample.
                gate.close()?;
                Err(Error::failed(error))
            }
        }
    })
}

/// Checks the arguments, then changes the builder; invalid arguments change nothing.
fn change<C: FnOnce(Builder) -> Builder>(
    builder: *mut pathcall_place_builder,
    check: impl FnOnce() -> Result<C, Error>,
) -> i32 {
    register(builder, |_| check())
}

/// As [`change`], with the gate for calls to a C function.
fn register<C: FnOnce(Builder) -> Builder>(
    builder: *mut pathcall_place_builder,
    check: impl FnOnce(&CallGate) -> Result<C, Error>,
) -> i32 {
    code(|| {
        let builder = opaque(builder, "builder")?;
        let change = check(&builder.gate)?;
        let given = builder.builder.take().ok_or_else(|| Error::failed("an earlier call has failed"))?;
        builder.builder = Some(change(given));
        Ok(PATHCALL_PLACE_OK)
    })
}

fn kernel_of(kernel: &pathcall_place_kernel) -> Result<TaskCode, Error> {
    let tables = elements(kernel.tables, kernel.tables_count, "tables")?.iter();
    let tables = tables.map(|table| elements(table.bytes, table.count, "a table").map(Bytes::copy_from_slice));
    let length = match kernel.answer_bytes {
        PATHCALL_PLACE_AS_INPUT => AnswerLength::AsInput,
        PATHCALL_PLACE_ANY => AnswerLength::Any,
        bytes => {
            let bytes = usize::try_from(bytes);
            AnswerLength::Exactly(
                bytes.map_err(|_| Error::invalid(format!("invalid answer_bytes {}", kernel.answer_bytes)))?,
            )
        }
    };
    let own = Kernel {
        source: text(kernel.source, "source")?.to_owned(),
        entry: text(kernel.entry, "entry")?.to_owned(),
        options: text_or_none(kernel.options, "options")?.unwrap_or_default().to_owned(),
        items: match kernel.bytes_per_item {
            0 => WorkItemCount::Exactly(kernel.items),
            bytes => WorkItemCount::PerInput(bytes),
        },
        group: kernel.group as usize,
        length,
        tables: tables.map(|table| table.map(KernelTable::from)).collect::<Result<_, _>>()?,
    };
    match kernel.language {
        PATHCALL_PLACE_OPENCL => Ok(TaskCode::OpenCl(own)),
        PATHCALL_PLACE_CUDA => Ok(TaskCode::Cuda(own)),
        other => {
            let expected = "expected PATHCALL_PLACE_OPENCL (0) or PATHCALL_PLACE_CUDA (1)";
            Err(Error::invalid(format!("invalid kernel language {other}: {expected}")))
        }
    }
}

/// Reads a file; returns its name and text.
fn file(path: *const c_char, what: &str) -> Result<(String, String), Error> {
    let path = text(path, what)?;
    let text = fs::read_to_string(path).map_err(|error| Error::failed(format!("{path}: {error}")))?;
    Ok((path.to_owned(), text))
}
