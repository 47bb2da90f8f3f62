//! Model of pipes: evaluated in one place with whole messages, a random pipe gives the same requests and the same reply
//! as step by step with the fields that travel.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use pathcall_pipe::{HopAfter, Pipe};
use proptest::prelude::*;
use prost::Message;
use prost_reflect::DescriptorPool;

use crate::file;

static THINGS: LazyLock<DescriptorPool> =
    LazyLock::new(|| pathcall_build::descriptors(&[file("things.proto")], &[file("")]).expect("valid"));

/// `Thing` of `things.proto`.
#[derive(Clone, PartialEq, Message)]
struct Thing {
    #[prost(int32, tag = "1")]
    number: i32,
    #[prost(sint32, optional, tag = "2")]
    maybe: Option<i32>,
    #[prost(string, tag = "3")]
    text: String,
    #[prost(message, optional, boxed, tag = "4")]
    inner: Option<Box<Thing>>,
    #[prost(int32, repeated, tag = "5")]
    numbers: Vec<i32>,
    #[prost(btree_map = "string, message", tag = "6")]
    things: BTreeMap<String, Thing>,
    #[prost(oneof = "One", tags = "7, 8")]
    one: Option<One>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum One {
    #[prost(bool, tag = "7")]
    Flag(bool),
    #[prost(bytes = "vec", tag = "8")]
    Blob(Vec<u8>),
}

/// Message `.inner` of a source, so many times.
#[derive(Debug, Clone)]
struct Place {
    source: prop::sample::Index,
    depth: usize,
}

/// Expression of a number.
#[derive(Debug, Clone)]
enum Number {
    Constant(i32),
    Field(Place),
    Maybe(Place),
}

/// Expression of a message.
#[derive(Debug, Clone)]
enum Build {
    Whole(Place),
    Fields {
        number: Option<Number>,
        maybe: Option<Number>,
        text: Option<Place>,
        inner: Option<Box<Build>>,
        numbers: Option<Result<Vec<Number>, Place>>,
        things: Option<Result<Vec<Build>, Place>>,
        /// The flag, or else the blob.
        one: Option<(bool, Place)>,
    },
}

impl Place {
    fn source<'s, S>(&self, sources: &'s [S]) -> &'s S {
        self.source.get(sources)
    }

    /// Reference in a file: `$s1.inner.number`.
    fn write(&self, sources: &[String], field: &str) -> String {
        format!("${}{}{field}", self.source(sources), ".inner".repeat(self.depth))
    }

    fn find<'s>(&self, sources: &'s [Thing]) -> Option<&'s Thing> {
        (0..self.depth).try_fold(self.source(sources), |thing, _| thing.inner.as_deref())
    }
}

impl Number {
    fn write(&self, sources: &[String]) -> String {
        match self {
            Self::Constant(value) => value.to_string(),
            Self::Field(place) => place.write(sources, ".number"),
            Self::Maybe(place) => place.write(sources, ".maybe"),
        }
    }

    fn value(&self, sources: &[Thing]) -> Option<i32> {
        match self {
            Self::Constant(value) => Some(*value),
            Self::Field(place) => place.find(sources).map(|thing| thing.number),
            Self::Maybe(place) => place.find(sources)?.maybe,
        }
    }
}

impl Build {
    fn write(&self, sources: &[String]) -> String {
        let Self::Fields { number, maybe, text, inner, numbers, things, one } = self else {
            let Self::Whole(place) = self else { unreachable!("the other kind") };
            return place.write(sources, "");
        };
        let mut fields = Vec::new();
        fields.extend(number.iter().map(|it| format!("number: {}", it.write(sources))));
        fields.extend(maybe.iter().map(|it| format!("maybe: {}", it.write(sources))));
        fields.extend(text.iter().map(|it| format!("text: {}", it.write(sources, ".text"))));
        fields.extend(inner.iter().map(|it| format!("inner: {}", it.write(sources))));
        fields.extend(numbers.iter().map(|it| match it {
            Err(place) => format!("numbers: {}", place.write(sources, ".numbers")),
            Ok(all) => {
                let all: Vec<String> = all.iter().map(|it| it.write(sources)).collect();
                format!("numbers: [{}]", all.join(", "))
            }
        }));
        fields.extend(things.iter().map(|it| match it {
            Err(place) => format!("things: {}", place.write(sources, ".things")),
            Ok(all) => {
                let all: Vec<String> =
                    all.iter().enumerate().map(|(n, it)| format!("k{n}: {}", it.write(sources))).collect();
                format!("things: {{ {} }}", all.join(", "))
            }
        }));
        fields.extend(one.iter().map(|(flag, place)| {
            let name = if *flag { "flag" } else { "blob" };
            format!("{name}: {}", place.write(sources, &format!(".{name}")))
        }));
        format!("{{ {} }}", fields.join(", "))
    }

    fn value(&self, sources: &[Thing]) -> Option<Thing> {
        let Self::Fields { number, maybe, text, inner, numbers, things, one } = self else {
            let Self::Whole(place) = self else { unreachable!("the other kind") };
            return place.find(sources).cloned();
        };
        let keyed = |all: &Vec<Self>| {
            let entries = all.iter().enumerate().filter_map(|(n, it)| Some((format!("k{n}"), it.value(sources)?)));
            entries.collect()
        };
        Some(Thing {
            number: number.as_ref().and_then(|it| it.value(sources)).unwrap_or_default(),
            maybe: maybe.as_ref().and_then(|it| it.value(sources)),
            text: text.as_ref().and_then(|it| it.find(sources)).map(|thing| thing.text.clone()).unwrap_or_default(),
            inner: inner.as_ref().and_then(|it| it.value(sources)).map(Box::new),
            numbers: match numbers {
                None => Vec::new(),
                Some(Err(place)) => place.find(sources).map(|thing| thing.numbers.clone()).unwrap_or_default(),
                Some(Ok(all)) => all.iter().filter_map(|it| it.value(sources)).collect(),
            },
            things: match things {
                None => BTreeMap::new(),
                Some(Err(place)) => place.find(sources).map(|thing| thing.things.clone()).unwrap_or_default(),
                Some(Ok(all)) => keyed(all),
            },
            one: one.as_ref().and_then(|(flag, place)| match (flag, &place.find(sources)?.one) {
                (true, Some(One::Flag(value))) => Some(One::Flag(*value)),
                (false, Some(One::Blob(value))) => Some(One::Blob(value.clone())),
                _ => None,
            }),
        })
    }
}

fn thing() -> impl Strategy<Value = Thing> {
    let one = prop::option::of(prop_oneof![
        any::<bool>().prop_map(One::Flag),
        prop::collection::vec(any::<u8>(), 0..3).prop_map(One::Blob)
    ]);
    let flat = (-1..2i32, prop::option::of(-1..2i32), "[a-c]{0,2}", prop::collection::vec(-1..2i32, 0..3), one);
    let leaf = flat.prop_map(|(number, maybe, text, numbers, one)| Thing {
        number,
        maybe,
        text,
        numbers,
        one,
        ..Thing::default()
    });
    leaf.prop_recursive(3, 8, 2, |within| {
        let things = prop::collection::btree_map("[a-b]", within.clone(), 0..2);
        (within.clone(), prop::option::of(within.prop_map(Box::new)), things).prop_map(|(thing, inner, things)| Thing {
            inner,
            things,
            ..thing
        })
    })
}

fn place() -> impl Strategy<Value = Place> {
    (any::<prop::sample::Index>(), 0..3usize).prop_map(|(source, depth)| Place { source, depth })
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![(-1..2i32).prop_map(Number::Constant), place().prop_map(Number::Field), place().prop_map(Number::Maybe)]
}

fn build() -> impl Strategy<Value = Build> {
    place().prop_map(Build::Whole).prop_recursive(2, 8, 3, |within| {
        let numbers = prop_oneof![prop::collection::vec(number(), 0..3).prop_map(Ok), place().prop_map(Err)];
        let things = prop_oneof![prop::collection::vec(within.clone(), 0..3).prop_map(Ok), place().prop_map(Err)];
        (
            prop::option::of(number()),
            prop::option::of(number()),
            prop::option::of(place()),
            prop::option::of(within.prop_map(Box::new)),
            prop::option::of(numbers),
            prop::option::of(things),
            prop::option::of((any::<bool>(), place())),
        )
            .prop_map(|(number, maybe, text, inner, numbers, things, one)| Build::Fields {
                number,
                maybe,
                text,
                inner,
                numbers,
                things,
                one,
            })
    })
}

/// Steps with their requests and what their services reply.
fn steps() -> impl Strategy<Value = Vec<(Build, Thing)>> {
    prop::collection::vec((build(), thing()), 1..4)
}

/// File of a pipe.
fn write(steps: &[(Build, Thing)], reply: &Build) -> String {
    let mut sources = vec!["call".to_owned()];
    let mut text = "protos: []\npipe: /things.Things/Make\nsteps:\n".to_owned();
    for (n, (request, _)) in steps.iter().enumerate() {
        let request = request.write(&sources);
        text += &format!("- {{ name: s{n}, call: /things.Things/Make, request: {request} }}\n");
        sources.push(format!("s{n}"));
    }
    text + &format!("reply: {}\n", reply.write(&sources))
}

/// Message of an expression for a whole message, which is empty where the expression has none.
fn message(build: &Build, sources: &[Thing]) -> Thing {
    build.value(sources).unwrap_or_default()
}

proptest! {
    #[test]
    fn pipe_evaluated_step_by_step_matches_model(steps in steps(), reply in build(), call in thing()) {
        let text = write(&steps, &reply);
        let pipe = Pipe::parse("things.yaml", &text, &THINGS).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let mut sources = vec![call];
        let mut hop = pipe.first_hop(&sources[0].encode_to_vec()).expect("a thing");
        let mut replied = None;
        for (n, (request, answer)) in steps.iter().enumerate() {
            let arrived = pipe.arrive(n, hop.clone()).expect("a hop");
            let sent = Thing::decode(pipe.request(&arrived)).expect("a thing");
            prop_assert_eq!(sent, message(request, &sources), "request {} of\n{}", n, text);
            sources.push(answer.clone());
            match pipe.answered(arrived, &answer.encode_to_vec()).expect("a thing") {
                HopAfter::Step(next, message) => {
                    prop_assert_eq!(next, n + 1);
                    hop = message;
                }
                HopAfter::Reply(reply) => replied = Some(Thing::decode(reply).expect("a thing")),
            }
        }
        prop_assert_eq!(replied, Some(message(&reply, &sources)), "reply of\n{}", text);
    }
}
