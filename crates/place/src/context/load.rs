//! Loading of the registered functions, with checks against the application's needs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::bounded;

use super::builder::{NextFn, ROLES};
use super::device_queue::LoadedTask;
use super::error::InitError;
use super::window::Windows;
use crate::DeviceRole;
use crate::device::profile::{BUDGET, compute};
use crate::device::{Completion, ComputeDevice, Job, MESSAGE_MAX, TaskCode};
use crate::model::Application;

/// Timeout of a sample's answer; the device may have to compile a kernel first.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Loads the registered function of each task and role that has a device.
pub(super) fn load(
    application: &Application,
    devices: &[Option<Arc<dyn ComputeDevice>>; ROLES],
    functions: &[(String, DeviceRole, TaskCode, usize)],
) -> Result<Vec<[Option<LoadedTask>; ROLES]>, InitError> {
    for (name, ..) in functions {
        task_index(application, name)?;
    }
    let mut loaded = vec![[None; ROLES]; application.tasks.len()];
    for (task, loaded) in application.tasks.iter().zip(&mut loaded) {
        for role in DeviceRole::ALL {
            let given = functions.iter().filter(|(name, of, ..)| *name == task.name && *of == role);
            let given: Vec<_> = given.collect();
            let Some(device) = &devices[role as usize] else { continue };
            let Some(first) = given.first() else { continue };
            let fits = given.iter().find(|(_, _, code, _)| code.runs_on(device.info().kind)).unwrap_or(first);
            let (name, _, code, answer_max) = fits;
            if *answer_max > MESSAGE_MAX {
                return Err(InitError::Registered(format!("`{name}`: answers have {MESSAGE_MAX} bytes at most")));
            }
            loaded[role as usize] = Some(LoadedTask { function: device.load(name, code)?, answer_max: *answer_max });
        }
    }
    missing_function(application, devices, &loaded).map_or(Ok(loaded), Err)
}

/// Missing function, if a dataflow needs one on this side, for a role with a device. A side without devices needs
/// none.
fn missing_function(
    application: &Application,
    devices: &[Option<Arc<dyn ComputeDevice>>; ROLES],
    loaded: &[[Option<LoadedTask>; ROLES]],
) -> Option<InitError> {
    let trips = application.requests.iter().flat_map(|request| &request.dataflows).flat_map(|flow| &flow.trips);
    let ends = trips.flat_map(|trip| [trip.requester, trip.responder]);
    let any = |task: usize| loaded[task].iter().any(Option::is_some);
    let missing = ends.filter_map(|end| Some((end.task?, end.role))).find(|(task, role)| {
        any(*task) && devices[*role as usize].is_some() && loaded[*task][*role as usize].is_none()
    });
    // A task on an accelerator needs a function on the CPU, the last fallback.
    let alone = (0..loaded.len())
        .find(|task| any(*task) && loaded[*task][DeviceRole::Cpu as usize].is_none())
        .map(|task| (task, DeviceRole::Cpu));
    let (task, role) = missing.or(alone)?;
    let (file, name) = (application.file.clone(), application.tasks[task].name.clone());
    let call = if devices[role as usize].is_some() { "reg_app_func" } else { "device" };
    Some(InitError::Lacking { file, task: name, role, call })
}

fn task_index(application: &Application, name: &str) -> Result<usize, InitError> {
    index(application, "task", name, application.tasks.iter().map(|task| &task.name[..]).collect())
}

/// Index of a registered name among those of the application.
fn index(application: &Application, what: &'static str, name: &str, known: Vec<&str>) -> Result<usize, InitError> {
    let at = known.iter().position(|known| *known == name);
    at.ok_or_else(|| {
        let (name, file) = (name.to_owned(), application.file.clone());
        InitError::Unknown { name, file, what, has: known.join(", ") }
    })
}

/// Checks that a window is memory of its role.
pub(super) fn check_window_role(
    windows: &Windows,
    name: &str,
    role: DeviceRole,
    device: Option<&dyn ComputeDevice>,
) -> Result<(), InitError> {
    let window = windows.0.get(name).and_then(|memory| memory.as_device_window());
    let wrong =
        |what: String| Err(InitError::Registered(format!("memory `{name}` is registered for {role}, but {what}")));
    match (window, device) {
        (None, _) if role == DeviceRole::Cpu => Ok(()),
        (None, _) => wrong("is memory of the host: register it for cpu, or a window of the accelerator".into()),
        (Some(window), Some(device)) if device.owns(window) => Ok(()),
        (Some(window), Some(device)) => wrong(format!(
            "is memory of {}, not of {}: create it with `window` of the role's device",
            window.device(),
            device.info().name
        )),
        (Some(window), None) => {
            wrong(format!("is memory of {}, and {role} has no device: call `device`", window.device()))
        }
    }
}

pub(super) fn next_functions(
    application: &Application,
    given: Vec<(String, NextFn)>,
) -> Result<Vec<Option<NextFn>>, InitError> {
    let mut next: Vec<Option<NextFn>> = vec![None; application.requests.len()];
    for (name, function) in given {
        let known = application.requests.iter().map(|request| &request.name[..]).collect();
        next[index(application, "request type", &name, known)?] = Some(function);
    }
    Ok(next)
}

/// Runs a sample on all devices, whose answers must be equal. Measures compute times that are not given.
pub(super) fn check_sample(
    application: &mut Application,
    devices: &[Option<Arc<dyn ComputeDevice>>; ROLES],
    loaded: &[[Option<LoadedTask>; ROLES]],
    name: &str,
    request: &Bytes,
) -> Result<(), InitError> {
    let at = task_index(application, name)?;
    let unknown = application.unknown();
    let failed = |reason: String| InitError::Sample { task: name.into(), reason };
    let mut right: Option<Bytes> = None;
    for role in DeviceRole::ALL {
        let (Some(device), Some(task)) = (&devices[role as usize], loaded[at][role as usize]) else { continue };
        let room = request.len().max(task.answer_max);
        let answer = run_once(&**device, task, request, room).map_err(failed)?;
        match &right {
            None => right = Some(answer),
            Some(right) if *right == answer => {}
            Some(right) => {
                let place = right.iter().zip(&answer).position(|(one, other)| one != other);
                let place = place.unwrap_or(right.len().min(answer.len()));
                let difference = format!("{} and {} bytes that differ at {place}", answer.len(), right.len());
                let (task, device) = (name.to_owned(), device.info().name.clone());
                return Err(InitError::Differs { task, device, bytes: request.len(), difference });
            }
        }
        if unknown.contains(&(at, role)) {
            let measured =
                compute(&**device, task.function, request, room, BUDGET).map_err(|e| failed(e.to_string()))?;
            application.set_measured(at, role, measured.job_ns, measured.busy_ns);
        }
    }
    Ok(())
}

/// Runs one request.
fn run_once(device: &dyn ComputeDevice, task: LoadedTask, request: &Bytes, room: usize) -> Result<Bytes, String> {
    let (done, completions) = bounded(1);
    let region = device.register(room, room).map_err(|error| error.to_string())?;
    let job = Job { tag: 0, function: task.function, input: request.clone(), region, done };
    device.submit(job).map_err(|error| error.to_string())?;
    let Completion { region, result, .. } =
        completions.recv_timeout(SAMPLE_TIMEOUT).map_err(|_| "no answer".to_owned())?;
    let bytes = result.map_err(|error| error.to_string())?;
    region.map(|region| Bytes::copy_from_slice(region.output(bytes))).ok_or_else(|| "no memory".to_owned())
}
