//! Fuzz target of place's model files: parsing returns a model or an error of one line, without panic. Text after `h`
//! is a hardware model, after `a` an application. A valid model is combined with the crate's own applications or hosts
//! into paths.

use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, ModelError, Paths};

/// Tests one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(text) = text.strip_prefix('h') {
        let Some(hardware) = valid(Hardware::parse("f.yaml", text)) else { return };
        let kvs = include_str!("../../place/models/applications/kvs.yaml");
        check_paths(&hardware, Application::parse("kvs.yaml", kvs).expect("model of the crate"));
    } else if let Some(text) = text.strip_prefix('a') {
        let Some(application) = valid(Application::parse("f.yaml", text)) else { return };
        Preset::ALL.into_iter().for_each(|preset| check_paths(&Hardware::preset(preset), application.clone()));
    }
}

fn valid<T>(read: Result<T, ModelError>) -> Option<T> {
    read.map_err(|mistake| assert_eq!(mistake.to_string().lines().count(), 1)).ok()
}

fn check_paths(hardware: &Hardware, application: Application) {
    let Some(mut application) = valid(application.for_hosts(hardware, hardware)) else { return };
    for (task, role) in application.unknown() {
        application.set_compute(task, role, 1);
    }
    if let Some(paths) = valid(Paths::of(hardware, hardware, &application)) {
        for path in &paths.paths {
            assert!(path.traverse_ns >= path.hops.iter().map(|hop| hop.delay_ns).max().unwrap_or(0));
            assert!(paths.of_kind(path.kind).contains(path));
            for hop in &path.hops {
                let resource = &paths.resources[usize::from(hop.resource.0)];
                assert!(resource.node.is_none_or(|role| hardware.device(role).is_some()));
            }
        }
    }
}
