//! Parser of application models.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::application::{AccessMode, Application, Dataflow, Dependency, LinkBytes, RequestType, Task, Trip, TripEnd};
use super::hardware::{HostLink, NodeRole};
use super::yaml::{FieldReader, NO_VALUE, NamedEntries, SpannedText, given, position, read};
use super::{DeviceRole, units};
use crate::ModelError;

/// Limit on the dataflows of a request type, and on the trips of a dataflow.
const WAYS_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    application: SpannedText,
    #[serde(default)]
    tasks: NamedEntries<TaskFile>,
    requests: Spanned<NamedEntries<RequestFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    #[serde(default, deserialize_with = "given")]
    cpu: Option<SpannedText>,
    /// Time on each accelerator without a time of its own.
    #[serde(default, deserialize_with = "given")]
    acc: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc0: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc1: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc2: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc3: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc4: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc5: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    acc6: Option<SpannedText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFile {
    dependency: SpannedText,
    #[serde(default, deserialize_with = "given")]
    access: Option<SpannedText>,
    dataflows: Vec<DataflowFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataflowFile {
    #[serde(default, deserialize_with = "given")]
    name: Option<SpannedText>,
    trips: Vec<TripFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TripFile {
    path: SpannedText,
    bytes: Spanned<BytesFile>,
    reply: Spanned<BytesFile>,
    #[serde(default, deserialize_with = "given")]
    requester: Option<SpannedText>,
    #[serde(default, deserialize_with = "given")]
    responder: Option<SpannedText>,
}

/// Bytes of a trip: `8 B` on each link; or `[CA: 256 KiB, AN: 133 KiB, NA: 133 KiB]`.
enum BytesFile {
    Each(String),
    Links(Vec<(SpannedText, SpannedText)>),
}

pub(super) fn parse(file: &str, text: &str) -> Result<Application, ModelError> {
    let reader = FieldReader { file };
    let parsed: File = read(file, text)?;
    let mut application = Application {
        name: reader.name(&parsed.application)?,
        file: file.to_owned(),
        tasks: Vec::new(),
        requests: Vec::new(),
    };
    for (name, task) in &parsed.tasks.0 {
        let time =
            |text: &Option<SpannedText>| text.as_ref().map(|text| reader.quantity(&units::TIME, text)).transpose();
        let TaskFile { cpu, acc, acc0, acc1, acc2, acc3, acc4, acc5, acc6 } = task;
        let each = time(acc)?;
        let mut compute_ns = [None; DeviceRole::ALL.len()];
        for (ns, text) in compute_ns.iter_mut().zip([cpu, acc0, acc1, acc2, acc3, acc4, acc5, acc6]) {
            *ns = time(text)?;
        }
        compute_ns[1..].iter_mut().for_each(|ns| *ns = ns.or(each));
        let busy_ns = [None; DeviceRole::ALL.len()];
        application.tasks.push(Task { name: reader.name(name)?, compute_ns, busy_ns });
    }
    let requests = &parsed.requests.value.0;
    reader.check_count("requests", &parsed.requests, requests.len())?;
    for (name, request) in requests {
        let request = request_type(reader, &application.tasks, name, request)?;
        application.requests.push(request);
    }
    Ok(application)
}

fn request_type(
    reader: FieldReader<'_>,
    tasks: &[Task],
    name: &SpannedText,
    given: &RequestFile,
) -> Result<RequestType, ModelError> {
    let words = [("NONE", Dependency::None), ("ADDR", Dependency::Addr), ("MSG", Dependency::Msg)];
    let dependency = reader.word("dependency", &words, &given.dependency)?;
    let words = [("read", AccessMode::Read), ("write", AccessMode::Write)];
    let access = given.access.as_ref().map_or(Ok(AccessMode::Write), |text| reader.word("access", &words, text))?;
    if given.dataflows.is_empty() || given.dataflows.len() > WAYS_MAX {
        let message = format!("`{}` has {} dataflows; give 1 to {WAYS_MAX}", name.value, given.dataflows.len());
        return reader.fail(name, message);
    }
    let mut dataflows: Vec<Dataflow> = Vec::with_capacity(given.dataflows.len());
    for way in &given.dataflows {
        if way.trips.is_empty() || way.trips.len() > WAYS_MAX {
            let message = format!("a dataflow of `{}` has {} trips; give 1 to {WAYS_MAX}", name.value, way.trips.len());
            return reader.fail(name, message);
        }
        let trips = way.trips.iter().map(|given| trip(reader, tasks, given)).collect::<Result<Vec<_>, _>>()?;
        let joined = || way.trips.iter().map(|trip| &trip.path.value[..]).collect::<Vec<_>>().join(",");
        let flow = way.name.as_ref().map_or_else(|| Ok(joined()), |name| reader.name(name))?;
        if let Some(first) = dataflows.iter().position(|known| known.name == flow) {
            let (at, line) = (name_of(way), name_of(&given.dataflows[first]).referenced.line());
            let message =
                format!("`{}` has two dataflows `{flow}`, the first in line {line}; give one a `name`", name.value);
            return reader.fail(at, message);
        }
        dataflows.push(Dataflow { name: flow, trips });
    }
    Ok(RequestType { name: reader.name(name)?, dependency, access, dataflows })
}

/// Text that names a dataflow, or its first path.
fn name_of(flow: &DataflowFile) -> &SpannedText {
    flow.name.as_ref().unwrap_or(&flow.trips[0].path)
}

fn trip(reader: FieldReader<'_>, tasks: &[Task], given: &TripFile) -> Result<Trip, ModelError> {
    let (from, to) = path(reader, &given.path)?;
    let task = |text: &Option<SpannedText>| text.as_ref().map(|text| task(reader, tasks, text)).transpose();
    Ok(Trip {
        requester: TripEnd { task: task(&given.requester)?, ..from },
        responder: TripEnd { task: task(&given.responder)?, ..to },
        there: links(reader, from.role, to.role, &given.bytes)?,
        back: links(reader, to.role, from.role, &given.reply)?,
        position: position(&given.path.referenced),
    })
}

/// Reads the ends of a path: `cpu-acc`, or `cpu-acc1` with the number of an accelerator.
fn path(reader: FieldReader<'_>, text: &SpannedText) -> Result<(TripEnd, TripEnd), ModelError> {
    let end = |word: &str| {
        let (role, is_any) = match word {
            "acc" => (DeviceRole::Acc, true),
            "acc0" => (DeviceRole::Acc, false),
            word => (DeviceRole::named(word)?, false),
        };
        Some(TripEnd { role, is_any, task: None })
    };
    let ends = text.value.split_once('-').and_then(|(from, to)| Some((end(from)?, end(to)?)));
    ends.map_or_else(
        || {
            let known = "cpu-cpu, cpu-acc, acc-cpu, acc-acc, or name an accelerator, acc0 to acc6, like cpu-acc1";
            reader.fail(text, format!("invalid path `{}`; write one of {known}", text.value))
        },
        Ok,
    )
}

fn task(reader: FieldReader<'_>, tasks: &[Task], text: &SpannedText) -> Result<usize, ModelError> {
    match tasks.iter().position(|task| task.name == text.value) {
        Some(at) => Ok(at),
        None if tasks.is_empty() => reader.fail(text, format!("there is no task `{}`; add it to `tasks`", text.value)),
        None => {
            let known: Vec<&str> = tasks.iter().map(|task| &task.name[..]).collect();
            reader.fail(text, format!("there is no task `{}`; tasks are {}", text.value, known.join(", ")))
        }
    }
}

/// Logical links from a role of one host to a role of the other.
fn links(
    reader: FieldReader<'_>,
    from: DeviceRole,
    to: DeviceRole,
    given: &Spanned<BytesFile>,
) -> Result<Vec<LinkBytes>, ModelError> {
    let (out, into) = (HostLink::out_of(from), HostLink::into(to));
    let whole = |text: &str| SpannedText::new(text.to_owned(), given.referenced, given.defined);
    let list = match &given.value {
        BytesFile::Each(text) => {
            let bytes = reader.quantity(&units::SIZE, &whole(text))?;
            return Ok([out, into].map(|link| LinkBytes { link, bytes }).to_vec());
        }
        BytesFile::Links(list) => list,
    };
    let words = HostLink::ALL.map(|link| (link.name(), link));
    let mut links: Vec<LinkBytes> = Vec::with_capacity(list.len());
    for (name, size) in list {
        let link = reader.word("logical link", &words, name)?;
        if let Some(before) = links.last()
            && before.link.ends().1 != link.ends().0
        {
            let message = format!(
                "{} ends at the {}, {} begins at the {}; links follow each other",
                before.link.name(),
                before.link.ends().1.name(),
                link.name(),
                link.ends().0.name()
            );
            return reader.fail(name, message);
        }
        links.push(LinkBytes { link, bytes: reader.quantity(&units::SIZE, size)? });
    }
    let crossings: Vec<usize> = (1..links.len()).filter(|at| links[*at].link.ends().0 == NodeRole::Nic).collect();
    let fits = match crossings[..] {
        [at] => (links[at - 1].link, links[at].link) == (out, into) && at <= 2 && links.len() - at <= 2,
        _ => false,
    };
    if !fits {
        let message = format!(
            "from {from} to {to} a message goes over {}, then {}; one other link may stand before, one after",
            out.name(),
            into.name()
        );
        return reader.fail(&whole(""), message);
    }
    Ok(links)
}

impl<'de> Deserialize<'de> for BytesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = BytesFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size, or a list of links with sizes like `[CA: 256 KiB, AN: 8 B, NC: 8 B]`")
            }

            fn visit_str<E>(self, text: &str) -> Result<BytesFile, E> {
                Ok(BytesFile::Each(text.to_owned()))
            }

            // A number without a unit is rejected by the parser of sizes.
            fn visit_u64<E>(self, number: u64) -> Result<BytesFile, E> {
                Ok(BytesFile::Each(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<BytesFile, E> {
                Ok(BytesFile::Each(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<BytesFile, E> {
                Ok(BytesFile::Each(number.to_string()))
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<BytesFile, E> {
                Err(E::custom(NO_VALUE))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<BytesFile, A::Error> {
                let mut links = Vec::new();
                while let Some(NamedEntries(entries)) = seq.next_element()? {
                    if entries.len() != 1 {
                        return Err(A::Error::custom("each entry is one link with its size, like `CN: 8 B`"));
                    }
                    links.extend(entries);
                }
                Ok(BytesFile::Links(links))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
