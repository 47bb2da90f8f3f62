//! Tests of manifests: look-up by path, and shapes.

use pathcall_proto::manifest::{Manifest, Method, Shape};

const fn method(path: &'static str) -> Method {
    Method { path, app: "app", ..Method::DEFAULT }
}

#[test]
fn methods_are_found_by_path() {
    static METHODS: [Method; 3] = [method("/a.S/One"), method("/a.S/Three"), method("/a.S/Two")];
    let manifest = Manifest { methods: &METHODS, delegated: &[], cloned: &[], placed: &[], descriptor: &[] };
    for wanted in &METHODS {
        assert_eq!(manifest.method(wanted.path), Some(wanted));
    }
    assert_eq!(manifest.method("/a.S/Four"), None);
}

#[test]
fn every_shape_is_array_map_or_scalar() {
    for shape in Shape::ALL {
        let ways = [shape.is_array(), shape.is_map(), shape.is_scalar()];
        assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{shape:?}");
    }
}
