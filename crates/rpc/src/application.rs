//! Applications of a program: its methods with a filter, grouped by `AppName` (NetRPC §3.2).
//!
//! Caller and server compute them from the same [`Manifest`]; [`Application::digest`] detects that their manifests
//! differ.

use std::collections::BTreeMap;

use pathcall_proto::manifest::{
    Ack, ClearPolicy, Cloned, Delegated, FilterStreams, ForwardTarget, Kind, Manifest, MapPath, Method, Placed,
};
use pathcall_wire::{KEYED_WIDTH, LINEAR_LANES, MAX_WORKERS};

/// Properties that all methods of one `AppName` share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Application {
    pub(crate) name: &'static str,
    /// Digest of the filters; equal for equal filters.
    pub(crate) digest: u64,
    /// Number of workers of a SyncAgtr application; 0 for a keyed map.
    pub(crate) threshold: u32,
    /// Whether the server's handler gets the sums, and decides the results.
    pub(crate) handled: bool,
    /// Clear policy of the arrays.
    pub(crate) clear: ClearPolicy,
    /// Whether the element may hold keys: no method needs a value together with its own addition.
    pub(crate) mapping: bool,
    /// Whether each addition waits for the server's acknowledgement.
    pub(crate) acked: bool,
    /// Whether the element may hold locks: every method takes or releases locks.
    pub(crate) locks: bool,
    /// Whether any method takes locks.
    pub(crate) takes_locks: bool,
    /// Whether the element may count ballots: every method counts to the same threshold, or clears.
    pub(crate) votes: bool,
    /// Whether any method uses the map.
    pub(crate) has_map: bool,
    /// Path of the calls: that of the first method with one, other than automatic.
    pub(crate) path: MapPath,
    /// Threshold and target of the counting methods so far, if they are equal.
    counted: Option<(u32, ForwardTarget)>,
}

impl Application {
    fn new(method: &Method) -> Self {
        Self {
            name: method.app,
            digest: method.digest,
            threshold: 0,
            handled: false,
            clear: ClearPolicy::Copy,
            mapping: true,
            acked: true,
            locks: true,
            takes_locks: false,
            votes: true,
            has_map: false,
            path: MapPath::Automatic,
            counted: None,
        }
    }

    /// Finishes the application: without counting methods there are no ballots.
    fn finish(self) -> Self {
        Self { votes: self.votes && self.counted.is_some(), ..self }
    }

    /// The application with another path of its calls.
    pub(crate) fn with_path(self, path: MapPath) -> Self {
        Self { path, ..self }
    }

    fn add_method(&mut self, method: &Method) {
        if method.kind == Kind::Modify {
            return;
        }
        self.has_map = true;
        let takes = matches!(method.kind, Kind::Count { threshold: 1, to: ForwardTarget::Src });
        self.takes_locks |= matches!(method.kind, Kind::Count { threshold: 1, .. });
        self.locks &= takes || method.kind == Kind::Clear && method.request.is_some();
        self.votes &= match method.kind {
            Kind::Count { threshold: threshold @ 2.., to } if method.request.is_some() => {
                // NetRPC Table 2: a counter has one threshold.
                *self.counted.get_or_insert((threshold, to)) == (threshold, to)
            }
            Kind::Clear => method.request.is_some(),
            _ => false,
        };
        if self.path == MapPath::Automatic {
            self.path = method.map_path;
        }
        self.acked &= !matches!(method.kind, Kind::Add { .. }) || method.ack == Ack::Server;
        match method.kind {
            Kind::Sum { threshold, clear } => {
                (self.threshold, self.clear) = (threshold, clear);
                self.handled = method.to == ForwardTarget::Server;
            }
            Kind::Add { get: false, .. } | Kind::Query | Kind::Modify => {}
            Kind::Add { get: true, .. } | Kind::Count { .. } | Kind::Clear => self.mapping = false,
        }
    }

    /// Whether callers may read registers of the element. If the server acknowledges all additions, it also answers all
    /// queries: a value that it does not have may be lost.
    pub(crate) fn reads_by_element(&self) -> bool {
        self.mapping && !self.acked && self.threshold == 0
    }

    /// Whether an owner's store can keep the state: the methods add, read and clear values.
    pub(crate) fn can_be_stored(&self) -> bool {
        self.threshold == 0 && !self.takes_locks && self.counted.is_none()
    }

    /// Lanes of one register row.
    pub(crate) fn width(&self) -> u16 {
        (if self.threshold > 0 {
            LINEAR_LANES
        } else if self.locks || self.votes {
            // A lock or a ballot takes a row without lanes.
            1
        } else {
            KEYED_WIDTH
        }) as u16
    }

    /// Whether an element's memory is useful: the element can distinguish that many workers, or may hold keys.
    pub(crate) fn can_use_element(&self) -> bool {
        if self.threshold > 0 {
            self.threshold as usize <= MAX_WORKERS
        } else {
            self.has_map && (self.mapping || self.locks || self.votes)
        }
    }
}

/// Methods and applications of all manifests of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalogue {
    manifests: Vec<&'static Manifest>,
}

/// Conflict of two manifests of one program, which have different filters for one application.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} belong to the same application {app}, but were built from different filters of it")]
pub struct FilterConflict {
    /// The `AppName`.
    pub app: &'static str,
    /// Path of a method of the application.
    pub first: &'static str,
    /// Path of another one, in another manifest.
    pub second: &'static str,
}

impl Catalogue {
    pub(crate) fn push(&mut self, manifest: &'static Manifest) {
        self.manifests.push(manifest);
    }

    /// Method with this path, if it has a filter.
    pub(crate) fn method(&self, path: &str) -> Option<&'static Method> {
        self.manifests.iter().find_map(|manifest| manifest.method(path))
    }

    /// Paths of the methods with a filter that have streams.
    pub(crate) fn streamed(&self) -> impl Iterator<Item = &'static str> {
        let methods = self.manifests.iter().flat_map(|manifest| manifest.methods);
        methods.filter(|method| method.streams != FilterStreams::Unary).map(|method| method.path)
    }

    /// Methods of an application.
    pub(crate) fn methods_of(&self, application: &str) -> impl Iterator<Item = &'static Method> {
        self.manifests.iter().flat_map(|manifest| manifest.methods).filter(move |method| method.app == application)
    }

    /// Method with this path, if it has the option `delegate`.
    pub(crate) fn delegated(&self, path: &str) -> Option<&'static Delegated> {
        self.manifests.iter().find_map(|manifest| manifest.delegated(path))
    }

    /// Method with this path, if it has the option `clone`.
    pub(crate) fn cloned(&self, path: &str) -> Option<&'static Cloned> {
        self.manifests.iter().find_map(|manifest| manifest.cloned(path))
    }

    /// Index of a method in [`all_cloned`](Self::all_cloned).
    pub(crate) fn nth_cloned(&self, method: &'static Cloned) -> Option<usize> {
        self.all_cloned().position(|other| std::ptr::eq(other, method))
    }

    /// All methods with the option `clone`.
    pub(crate) fn all_cloned(&self) -> impl Iterator<Item = &'static Cloned> {
        self.manifests.iter().flat_map(|manifest| manifest.cloned)
    }

    /// All methods with the option `place`.
    pub(crate) fn all_placed(&self) -> impl Iterator<Item = &'static Placed> {
        self.manifests.iter().flat_map(|manifest| manifest.placed)
    }

    /// All applications by name.
    pub(crate) fn applications(&self) -> Result<BTreeMap<&'static str, Application>, FilterConflict> {
        let mut applications = BTreeMap::<_, (Application, &Method)>::new();
        for method in self.manifests.iter().flat_map(|manifest| manifest.methods) {
            let (application, first) =
                applications.entry(method.app).or_insert_with(|| (Application::new(method), method));
            if application.digest != method.digest {
                return Err(FilterConflict { app: method.app, first: first.path, second: method.path });
            }
            application.add_method(method);
        }
        Ok(applications.into_iter().map(|(name, (application, _))| (name, application.finish())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn method(path: &'static str, app: &'static str, digest: u64, kind: Kind) -> Method {
        Method { path, app, digest, kind, ..Method::DEFAULT }
    }

    static FIRST: Manifest = Manifest {
        methods: &[
            method("/a/Add", "keyed", 1, Kind::Add { get: false, to: ForwardTarget::Src }),
            method("/a/Query", "keyed", 1, Kind::Query),
            method("/a/Sum", "sum", 2, Kind::Sum { threshold: 3, clear: ClearPolicy::Shadow }),
        ],
        delegated: &[],
        cloned: &[],
        placed: &[],
        descriptor: &[],
    };
    static SECOND: Manifest = Manifest {
        methods: &[method("/b/Add", "keyed", 7, Kind::Add { get: true, to: ForwardTarget::Src })],
        delegated: &[],
        cloned: &[],
        placed: &[],
        descriptor: &[],
    };

    #[test]
    fn methods_are_gathered_by_name() {
        let mut catalogue = Catalogue::default();
        catalogue.push(&FIRST);
        let applications = catalogue.applications().unwrap();
        let keyed = Application {
            name: "keyed",
            digest: 1,
            threshold: 0,
            clear: ClearPolicy::Copy,
            mapping: true,
            acked: false,
            locks: false,
            takes_locks: false,
            votes: false,
            has_map: true,
            path: MapPath::Automatic,
            counted: None,
            handled: false,
        };
        let clear = ClearPolicy::Shadow;
        let sum = Application { name: "sum", digest: 2, threshold: 3, clear, acked: true, ..keyed };
        assert_eq!(applications.into_values().collect::<Vec<_>>(), [keyed, sum]);
        assert_eq!((keyed.width(), sum.width()), (64, 256));
        assert_eq!(catalogue.method("/a/Sum").map(|method| method.app), Some("sum"));
        assert_eq!(catalogue.method("/b/Add"), None);
    }

    #[test]
    fn manifests_must_agree() {
        let mut catalogue = Catalogue::default();
        catalogue.push(&FIRST);
        catalogue.push(&SECOND);
        let expected = FilterConflict { app: "keyed", first: "/a/Add", second: "/b/Add" };
        assert_eq!(catalogue.applications(), Err(expected));
    }
}
