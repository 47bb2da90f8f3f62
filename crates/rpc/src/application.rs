//! The applications of a program: its methods with a filter, by `AppName` (NetRPC §3.2).
//!
//! Both ends of a call work this out from the same [`Manifest`]; [`Application::digest`] is how they
//! find out that they did not.

use std::collections::BTreeMap;

use pathcall_endpoint::map::ClearPolicy;
use pathcall_proto::manifest::{self, Ack, Cloned, Kind, Manifest, Method, Placed, Target};
use pathcall_wire::{KEYED_WIDTH, LINEAR_LANES, MAX_WORKERS};

/// What all methods of one `AppName` have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Application {
    pub(crate) name: &'static str,
    /// Equal filters, equal digest.
    pub(crate) digest: u64,
    /// Workers of a SyncAgtr application; 0: the map is keyed.
    pub(crate) threshold: u32,
    /// Clear policy of its arrays.
    pub(crate) clear: ClearPolicy,
    /// Whether the element may hold keys: nobody needs a value together with its own addition.
    pub(crate) mapping: bool,
    /// Whether every addition waits until the server has it.
    pub(crate) acked: bool,
    /// Whether the element may hold locks: every method takes or gives back.
    pub(crate) locks: bool,
    /// Whether any method takes locks.
    pub(crate) takes_locks: bool,
    /// Whether the element may count ballots: every method counts alike, or clears.
    pub(crate) votes: bool,
    /// What the methods that count up to a threshold agree on so far.
    counted: Option<(u32, Target)>,
}

impl Application {
    fn new(method: &Method) -> Self {
        Self {
            name: method.app,
            digest: method.digest,
            threshold: 0,
            clear: ClearPolicy::Copy,
            mapping: true,
            acked: true,
            locks: true,
            takes_locks: false,
            votes: true,
            counted: None,
        }
    }

    /// The application as a whole: without methods that count there are no ballots.
    fn whole(self) -> Self {
        Self { votes: self.votes && self.counted.is_some(), ..self }
    }

    fn take_in(&mut self, method: &Method) {
        let takes = matches!(method.kind, Kind::Count { threshold: 1, to: Target::Src });
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
        self.acked &= !matches!(method.kind, Kind::Add { .. }) || method.ack == Ack::Server;
        match method.kind {
            Kind::Sum { threshold, clear } => (self.threshold, self.clear) = (threshold, clear_policy(clear)),
            Kind::Add { get: false, .. } | Kind::Query => {}
            Kind::Add { get: true, .. } | Kind::Count { .. } | Kind::Clear => self.mapping = false,
        }
    }

    /// Lanes of one register row.
    pub(crate) fn width(&self) -> u16 {
        (if self.threshold > 0 {
            LINEAR_LANES
        } else if self.locks || self.votes {
            // A lock and a ballot take a row and no lanes.
            1
        } else {
            KEYED_WIDTH
        }) as u16
    }

    /// Whether an element's memory is of use: it can tell so many workers apart, or may hold keys.
    pub(crate) fn fits_an_element(&self) -> bool {
        if self.threshold > 0 {
            self.threshold as usize <= MAX_WORKERS
        } else {
            self.mapping || self.locks || self.votes
        }
    }
}

fn clear_policy(clear: manifest::ClearPolicy) -> ClearPolicy {
    match clear {
        manifest::ClearPolicy::Copy => ClearPolicy::Copy,
        manifest::ClearPolicy::Shadow => ClearPolicy::Shadow,
    }
}

/// Methods and applications of all manifests that a program uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalogue {
    manifests: Vec<&'static Manifest>,
}

/// Two manifests of one program that give one application different filters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} both belong to the application {app}, and were built from different filters of it")]
pub struct Disagreement {
    /// The `AppName`.
    pub app: &'static str,
    /// A method of it.
    pub first: &'static str,
    /// Another one, of another manifest.
    pub second: &'static str,
}

impl Catalogue {
    pub(crate) fn push(&mut self, manifest: &'static Manifest) {
        self.manifests.push(manifest);
    }

    /// The method with this path, if it has a filter.
    pub(crate) fn method(&self, path: &str) -> Option<&'static Method> {
        self.manifests.iter().find_map(|manifest| manifest.method(path))
    }

    /// The methods of an application.
    pub(crate) fn methods_of(&self, application: &str) -> impl Iterator<Item = &'static Method> {
        self.manifests.iter().flat_map(|manifest| manifest.methods).filter(move |method| method.app == application)
    }

    /// Whether servers may pass calls of the method with this path on.
    pub(crate) fn is_delegated(&self, path: &str) -> bool {
        self.manifests.iter().any(|manifest| manifest.is_delegated(path))
    }

    /// The method with this path, if a pool of servers answers it.
    pub(crate) fn cloned(&self, path: &str) -> Option<&'static Cloned> {
        self.manifests.iter().find_map(|manifest| manifest.cloned(path))
    }

    /// Which of all methods that pools answer a method is: its place in [`all_cloned`](Self::all_cloned).
    pub(crate) fn nth_cloned(&self, method: &'static Cloned) -> Option<usize> {
        self.all_cloned().position(|other| std::ptr::eq(other, method))
    }

    /// All methods that a pool of servers answers.
    pub(crate) fn all_cloned(&self) -> impl Iterator<Item = &'static Cloned> {
        self.manifests.iter().flat_map(|manifest| manifest.cloned)
    }

    /// All methods that a host's processor or accelerator may answer.
    pub(crate) fn all_placed(&self) -> impl Iterator<Item = &'static Placed> {
        self.manifests.iter().flat_map(|manifest| manifest.placed)
    }

    /// All applications by name.
    pub(crate) fn applications(&self) -> Result<BTreeMap<&'static str, Application>, Disagreement> {
        let mut applications = BTreeMap::<_, (Application, &Method)>::new();
        for method in self.manifests.iter().flat_map(|manifest| manifest.methods) {
            let (application, first) =
                applications.entry(method.app).or_insert_with(|| (Application::new(method), method));
            if application.digest != method.digest {
                return Err(Disagreement { app: method.app, first: first.path, second: method.path });
            }
            application.take_in(method);
        }
        Ok(applications.into_iter().map(|(name, (application, _))| (name, application.whole())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathcall_proto::manifest::{Modify, Target};

    const fn method(path: &'static str, app: &'static str, digest: u64, kind: Kind) -> Method {
        Method {
            path,
            app,
            digest,
            precision: 0,
            kind,
            modify: Modify::NOP,
            request: None,
            reply: None,
            untyped_request: false,
            to: Target::Src,
            ack: Ack::Element,
        }
    }

    static FIRST: Manifest = Manifest {
        methods: &[
            method("/a/Add", "keyed", 1, Kind::Add { get: false, to: Target::Src }),
            method("/a/Query", "keyed", 1, Kind::Query),
            method("/a/Sum", "sum", 2, Kind::Sum { threshold: 3, clear: manifest::ClearPolicy::Shadow }),
        ],
        delegated: &[],
        cloned: &[],
        placed: &[],
        descriptor: &[],
    };
    static SECOND: Manifest = Manifest {
        methods: &[method("/b/Add", "keyed", 7, Kind::Add { get: true, to: Target::Src })],
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
            counted: None,
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
        let expected = Disagreement { app: "keyed", first: "/a/Add", second: "/b/Add" };
        assert_eq!(catalogue.applications(), Err(expected));
    }
}
