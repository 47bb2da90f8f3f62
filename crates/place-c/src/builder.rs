//! How a context is made: three files, and what is registered (LEO Table II).

use std::ffi::{c_char, c_void};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pathcall_place::context::Builder;
use pathcall_place::context::comm::InProcess;
use pathcall_place::context::remote::Remote;
use pathcall_place::device::discover::{Choice, open};
use pathcall_place::device::{Code, Items, Kernel, Length};
use pathcall_place::{Application, Hardware, Role, Strategy};

use crate::args::{bytes, elements, opaque, owned, role, text, text_or_none};
use crate::context::pathcall_place_context;
use crate::error::{Error, PATHCALL_PLACE_OK, code, pointer};
use crate::functions::{
    self, Memory, User, pathcall_place_clock, pathcall_place_function, pathcall_place_next_function,
    pathcall_place_read_function, pathcall_place_write_function,
};
use crate::gate::Gate;

/// A kernel is in OpenCL C.
pub const PATHCALL_PLACE_OPENCL: u32 = 0;
/// A kernel is in CUDA C++.
pub const PATHCALL_PLACE_CUDA: u32 = 1;
/// Answers have the length of requests.
pub const PATHCALL_PLACE_AS_INPUT: i64 = -1;
/// Answers have the length that the function says.
pub const PATHCALL_PLACE_ANY: i64 = -2;

/// What is registered before a context begins.
pub struct pathcall_place_builder {
    /// None when a change of it has failed.
    builder: Option<Builder>,
    gate: Gate,
}

/// Bytes of the caller.
#[repr(C)]
pub struct pathcall_place_bytes {
    /// The first.
    pub bytes: *const u8,
    /// How many.
    pub count: usize,
}

/// A kernel: text that a device compiles.
#[repr(C)]
pub struct pathcall_place_kernel {
    /// `PATHCALL_PLACE_OPENCL` or `PATHCALL_PLACE_CUDA`.
    pub language: u32,
    /// Work items of a group.
    pub group: u32,
    /// The text.
    pub source: *const c_char,
    /// The entry's name.
    pub entry: *const c_char,
    /// For the compiler; null: nothing.
    pub options: *const c_char,
    /// A work item for each so many bytes of the request; 0: `items` of them.
    pub bytes_per_item: usize,
    /// Work items, where `bytes_per_item` is 0.
    pub items: usize,
    /// The bytes of an answer, `PATHCALL_PLACE_AS_INPUT` or `PATHCALL_PLACE_ANY`.
    pub answer_bytes: i64,
    /// Memory that is on the device before the first request.
    pub tables: *const pathcall_place_bytes,
    /// How many of them.
    pub tables_count: usize,
}

/// Reads an application and the hardware of both hosts, from files of YAML. Null: the text says what is wrong and where.
/// Free it, or have `pathcall_place_init` take it.
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
        Ok(Box::into_raw(Box::new(pathcall_place_builder { builder: Some(builder), gate: Gate::default() })))
    })
}

/// Frees a builder that no context came of; null is none.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_builder_free(builder: *mut pathcall_place_builder) {
    code(|| {
        if !builder.is_null() {
            opaque(builder, "builder")?.gate.shut()?;
            drop(owned(builder, "builder")?);
        }
        Ok(PATHCALL_PLACE_OK)
    });
}

/// How paths are chosen: `leo`, which it is unless it is said, `all-cpu`, `all-acc` and others.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_strategy(builder: *mut pathcall_place_builder, name: *const c_char) -> i32 {
    change(builder, || {
        let name = text(name, "name")?;
        let words = || Strategy::WORDS.map(|(word, _)| word).join(", ");
        let strategy = Strategy::named(name)
            .ok_or_else(|| Error::unknown(format!("no strategy `{name}`: expected one of {}", words())))?;
        Ok(move |builder: Builder| builder.strategy(strategy))
    })
}

/// Which device has a role: `cpu:2`, `opencl:0`, `cuda:0`, `emulated:per-job=10us,slots=2`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_device(builder: *mut pathcall_place_builder, of: u32, device: *const c_char) -> i32 {
    change(builder, || {
        let (of, choice) = (role(of)?, text(device, "device")?);
        let choice: Choice = choice.parse().map_err(Error::unknown)?;
        let device = open(&choice).map_err(Error::failed)?;
        Ok(move |builder: Builder| builder.device(of, device))
    })
}

/// Registers what carries messages: `itself` (this context is requester and responder) or `udp:HERE` and
/// `udp:HERE,SERVER`, with addresses like `127.0.0.1:7000`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_comm_func(
    builder: *mut pathcall_place_builder,
    what: *const c_char,
    name: *const c_char,
    of: u32,
) -> i32 {
    change(builder, || {
        let (what, name, of) = (text(what, "what")?, text(name, "name")?.to_owned(), role(of)?);
        let wrong = || {
            let expected = "expected itself, udp:ADDRESS:PORT or udp:ADDRESS:PORT,ADDRESS:PORT";
            Error::invalid(format!("`{what}` carries no messages: {expected}"))
        };
        let remote = match what.strip_prefix("udp:") {
            Some(addresses) => {
                let mut addresses = addresses.split(',').map(|address| address.parse().map_err(|_| wrong()));
                let here = addresses.next().ok_or_else(wrong)??;
                let server = addresses.next().transpose()?;
                Some(Remote::bind(here, server).map_err(Error::failed)?)
            }
            None if what == "itself" => None,
            None => return Err(wrong()),
        };
        Ok(move |builder: Builder| match remote {
            Some(remote) => builder.reg_comm_func(remote, &name, of),
            None => builder.reg_comm_func(InProcess::itself(), &name, of),
        })
    })
}

/// Registers memory of so many bytes that the other side may read and write under that name, by these functions.
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
        let memory = Arc::new(Memory { bytes: count, read, write, user: User::new(user, gate) });
        Ok(move |builder: Builder| builder.reg_mem_func(memory, &name, of))
    })
}

/// Registers a clock: `cpu` or `nic`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_ts_func(
    builder: *mut pathcall_place_builder,
    clock: pathcall_place_clock,
    user: *mut c_void,
    name: *const c_char,
) -> i32 {
    register(builder, |gate| {
        let clock = clock.ok_or_else(|| Error::invalid("the function is null"))?;
        let clock = functions::clock(clock, User::new(user, gate));
        let name = text(name, "name")?.to_owned();
        Ok(move |builder: Builder| builder.reg_ts_func(clock, &name))
    })
}

/// Registers what a task does on a role: a function of the host. `answer_max`: bytes of an answer, if they may be more
/// than the request's.
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
        let code = functions::code(function, User::new(user, gate));
        Ok(move |builder: Builder| builder.reg_app_func(code, &task, of, answer_max))
    })
}

/// The same with a kernel, which is copied, for the accelerator.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_reg_app_kernel(
    builder: *mut pathcall_place_builder,
    kernel: *const pathcall_place_kernel,
    task: *const c_char,
    answer_max: usize,
) -> i32 {
    change(builder, || {
        let kernel = elements(kernel, 1, "kernel")?;
        let (code, task) = (kernel_of(&kernel[0])?, text(task, "task")?.to_owned());
        Ok(move |builder: Builder| builder.reg_app_func(code, &task, Role::Acc, answer_max))
    })
}

/// Registers what makes the messages of later trips, of `message_max` bytes at most, for a type of request whose
/// dataflows have several; it is the answer to the last otherwise.
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
                text: format!("no message has {message_max} bytes"),
            });
        }
        let next = functions::next(function, User::new(user, gate), message_max);
        Ok(move |builder: Builder| builder.next(&kind, next))
    })
}

/// A request as a task gets it, which is copied: at the start both roles work on it and must give the same; what is
/// measured takes the place of times that the application's file lacks.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_sample(
    builder: *mut pathcall_place_builder,
    task: *const c_char,
    request: *const u8,
    request_bytes: usize,
) -> i32 {
    change(builder, || {
        let (task, request) = (text(task, "task")?.to_owned(), bytes(request, request_bytes, "request")?);
        let request = Bytes::copy_from_slice(request);
        Ok(move |builder: Builder| builder.sample(&task, request))
    })
}

/// Requests that come are given out as events, for `pathcall_place_handle`; they are handled at once otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_gives_out(builder: *mut pathcall_place_builder) -> i32 {
    change(builder, || Ok(|builder: Builder| builder.handles_itself(false)))
}

/// Says on this socket, a new file, where requests went and why: to `pathcall place explain`.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_door(builder: *mut pathcall_place_builder, path: *const c_char) -> i32 {
    change(builder, || {
        let path = text(path, "path")?.to_owned();
        Ok(move |builder: Builder| builder.door(Path::new(&path)))
    })
}

/// Loads functions, tries them where there are samples, begins to communicate. The builder is freed, also when null
/// comes of it: then the text says what is wrong. Free the context.
#[unsafe(no_mangle)]
pub extern "C" fn pathcall_place_init(builder: *mut pathcall_place_builder) -> *mut pathcall_place_context {
    pointer(|| {
        let pathcall_place_builder { builder, gate } = *owned(builder, "builder")?;
        let builder = builder.ok_or_else(|| Error::failed("an earlier call has failed"))?;
        match builder.init() {
            Ok(context) => Ok(Box::into_raw(Box::new(pathcall_place_context::new(context, gate)))),
            Err(error) => {
                // A device may still work on a sample.
                gate.shut()?;
                Err(Error::failed(error))
            }
        }
    })
}

/// Looks at arguments, then changes a builder: what is refused changes nothing.
fn change<C: FnOnce(Builder) -> Builder>(
    builder: *mut pathcall_place_builder,
    look: impl FnOnce() -> Result<C, Error>,
) -> i32 {
    register(builder, |_| look())
}

/// The same with a function of C, which is called as long as the gate is open.
fn register<C: FnOnce(Builder) -> Builder>(
    builder: *mut pathcall_place_builder,
    look: impl FnOnce(&Gate) -> Result<C, Error>,
) -> i32 {
    code(|| {
        let builder = opaque(builder, "builder")?;
        let change = look(&builder.gate)?;
        let given = builder.builder.take().ok_or_else(|| Error::failed("an earlier call has failed"))?;
        builder.builder = Some(change(given));
        Ok(PATHCALL_PLACE_OK)
    })
}

fn kernel_of(kernel: &pathcall_place_kernel) -> Result<Code, Error> {
    let tables = elements(kernel.tables, kernel.tables_count, "tables")?.iter();
    let tables = tables.map(|table| bytes(table.bytes, table.count, "a table").map(Bytes::copy_from_slice));
    let length = match kernel.answer_bytes {
        PATHCALL_PLACE_AS_INPUT => Length::AsInput,
        PATHCALL_PLACE_ANY => Length::Any,
        bytes => {
            Length::Exactly(usize::try_from(bytes).map_err(|_| Error::invalid(format!("answer_bytes is {bytes}")))?)
        }
    };
    let own = Kernel {
        source: text(kernel.source, "source")?.to_owned(),
        entry: text(kernel.entry, "entry")?.to_owned(),
        options: text_or_none(kernel.options, "options")?.unwrap_or_default().to_owned(),
        items: match kernel.bytes_per_item {
            0 => Items::Exactly(kernel.items),
            bytes => Items::PerInput(bytes),
        },
        group: kernel.group as usize,
        length,
        tables: tables.collect::<Result<_, _>>()?,
    };
    match kernel.language {
        PATHCALL_PLACE_OPENCL => Ok(Code::OpenCl(own)),
        PATHCALL_PLACE_CUDA => Ok(Code::Cuda(own)),
        other => Err(Error::invalid(format!("no language {other} of kernels"))),
    }
}

/// A file's name and text.
fn file(path: *const c_char, what: &str) -> Result<(String, String), Error> {
    let path = text(path, what)?;
    let text = fs::read_to_string(path).map_err(|error| Error::failed(format!("{path}: {error}")))?;
    Ok((path.to_owned(), text))
}
