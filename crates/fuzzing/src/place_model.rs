//! Text as a hardware model, then as an application: a model, or one line that says where it is wrong; no panic. Text
//! behind `h` is a model's, behind `a` an application's; what is taken is laid over the hosts that come with the crate.

use pathcall_place::model::Preset;
use pathcall_place::{Application, Hardware, Mistake, Paths, Role};

/// Takes one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(text) = text.strip_prefix('h') {
        let Some(hardware) = taken(Hardware::parse("f.yaml", text)) else { return };
        let kvs = include_str!("../../place/models/applications/kvs.yaml");
        lay(&hardware, Application::parse("kvs.yaml", kvs).expect("it comes with the crate"));
    } else if let Some(text) = text.strip_prefix('a') {
        let Some(application) = taken(Application::parse("f.yaml", text)) else { return };
        Preset::ALL.into_iter().for_each(|preset| lay(&Hardware::preset(preset), application.clone()));
    }
}

fn taken<T>(read: Result<T, Mistake>) -> Option<T> {
    read.map_err(|mistake| assert_eq!(mistake.to_string().lines().count(), 1)).ok()
}

fn lay(hardware: &Hardware, mut application: Application) {
    for (task, role) in application.unknown() {
        application.set_compute(task, role, 1);
    }
    if let Some(paths) = taken(Paths::of(hardware, hardware, &application)) {
        for path in &paths.paths {
            assert!(path.traverse_ns >= path.hops.iter().map(|hop| hop.delay_ns).max().unwrap_or(0));
            assert!(paths.of_kind(path.kind).contains(path) && matches!(path.role, Role::Cpu | Role::Acc));
        }
    }
}
