//! Schemas for editors and parsers accept the same files: the built-in ones, and thousands of small changes of them.

use std::cell::RefCell;
use std::collections::HashMap;

use pathcall_place::model::{APPLICATION_SCHEMA, HARDWARE_SCHEMA, Preset};
use pathcall_place::{Application, Hardware};
use regex::Regex;
use serde_json::{Map, Value, json};

/// Errors beyond a schema: references between names, routes, limits of numbers with units.
const BEYOND: [&str; 14] = [
    "there is no node",
    "there is no task",
    "no route from",
    "no link to",
    "no node has role",
    "no link joins",
    "two nodes with role",
    "joined twice",
    "to itself",
    "two dataflows",
    "links follow each other",
    "a message goes over",
    "so must its route",
    "the route visits",
];

#[test]
fn hardware_parser_and_schema_agree() {
    let custom = "
hardware: custom
nodes: { cpu: { role: cpu, slots: 2 }, gpu: { role: acc }, nic: { role: nic }, plx: { role: switch } }
links:
  - { between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [cpu, plx], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [gpu, plx], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
routes: { CA: [cpu, plx, gpu] }
";
    let several = "
hardware: several
nodes: { cpu: { role: cpu }, gpu: { role: acc }, dpu: { role: acc, slots: 2 }, nic: { role: nic } }
links:
  - { between: [cpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [gpu, nic], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
  - { between: [cpu, dpu], bandwidth: 1 GB/s, messages: 1 M/s, latency: 500 ns }
routes: { CA1: [cpu, dpu], AN1: [dpu, cpu, nic] }
";
    let texts = Preset::ALL.map(|preset| preset.file().1).into_iter().chain([custom, several]);
    agree(HARDWARE_SCHEMA, texts, |text| Hardware::parse("h.yaml", text).map(drop).map_err(|mistake| mistake.message));
}

#[test]
fn application_parser_and_schema_agree() {
    let texts = [
        include_str!("../models/applications/kvs.yaml"),
        include_str!("../models/applications/dfs.yaml"),
        include_str!("../models/applications/ebs.yaml"),
        include_str!("../models/applications/allreduce.yaml"),
        "
application: numbered
tasks: { look-up: { cpu: 3 us, acc: 1 us, acc1: 2 us, acc6: 3 us } }
requests:
  GET:
    dependency: NONE
    dataflows:
      - trips: [{ path: cpu-acc0, bytes: 8 B, reply: 64 B, responder: look-up }]
      - trips: [{ path: acc1-acc6, bytes: 8 B, reply: 64 B, responder: look-up }]
",
    ];
    agree(APPLICATION_SCHEMA, texts, |text| {
        Application::parse("a.yaml", text).map(drop).map_err(|mistake| mistake.message)
    });
}

fn agree<'a>(schema: &str, texts: impl IntoIterator<Item = &'a str>, read: impl Fn(&str) -> Result<(), String>) {
    let schema: Value = serde_json::from_str(schema).expect("a schema is JSON");
    let (mut taken, mut refused, mut beyond) = (0, 0, 0);
    for text in texts {
        read(text).expect("model of the crate");
        let whole: Value = serde_saphyr::from_str(text).expect("YAML");
        assert_eq!(fault(&schema, &whole), None);
        for changed in changes(&whole) {
            // JSON is valid YAML.
            let message = read(&changed.to_string());
            match (fault(&schema, &changed), message) {
                (None, Ok(())) => taken += 1,
                (Some(_), Err(_)) => refused += 1,
                (None, Err(message)) if BEYOND.iter().any(|phrase| message.contains(phrase)) => beyond += 1,
                (fault, message) => panic!("schema: {fault:?}, reader: {message:?}, of {changed}"),
            }
        }
    }
    println!("{taken} changed files taken by both, {refused} refused by both, {beyond} beyond the schema");
    assert!(taken > 20 && refused > 500 && beyond > 50);
}

/// All variants of a file with one change.
fn changes(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let with = |new: Value| {
                    Value::Object(
                        map.iter().map(|(k, v)| (k.clone(), if k == key { new.clone() } else { v.clone() })).collect(),
                    )
                };
                all.extend(changes(inner).into_iter().map(with));
                let mut without = map.clone();
                without.remove(key);
                let mut renamed = without.clone();
                renamed.insert(format!("{key} "), inner.clone());
                all.extend([without, renamed].map(Value::Object));
            }
            let mut more = map.clone();
            more.insert("extra".to_owned(), json!("7 B"));
            all.push(Value::Object(more));
            all.extend([json!({}), json!([]), json!("x")]);
        }
        Value::Array(list) => {
            for (at, inner) in list.iter().enumerate() {
                let with = |new| Value::Array([&list[..at], &[new], &list[at + 1..]].concat());
                all.extend(changes(inner).into_iter().map(with));
                all.push(Value::Array([&list[..at], &list[at + 1..]].concat()));
                all.push(Value::Array([&list[..at], std::slice::from_ref(inner), &list[at..]].concat()));
            }
            all.extend([json!({}), json!([]), json!("x")]);
        }
        Value::Number(_) => {
            all.extend([json!(0), json!(7), json!(-1), json!(70_000), json!(1.5), json!([]), json!(null)])
        }
        _ => {
            for text in [
                "", "x y", "-8 B", "8", "8 B", "0 B", ".5 us", "1. GB/s", "5 M/s", "1e3 B", "cpu", "acc", "CN", "MSG",
                "read",
            ] {
                all.push(json!(text));
            }
            all.extend([json!(null), json!([]), json!({})]);
        }
    }
    all
}

/// Difference between a value and a schema; supports the part of JSON Schema that these schemas use.
fn fault(schema: &Value, value: &Value) -> Option<String> {
    schema.as_object().expect("a schema").iter().find_map(|(word, rule)| {
        let fits = match (word.as_str(), value) {
            ("$schema" | "title" | "description", _) => true,
            ("type", _) => match rule.as_str().expect("one type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_i64(),
                other => panic!("type {other}"),
            },
            ("enum", _) => rule.as_array().expect("values").contains(value),
            ("pattern", Value::String(text)) => matches(rule.as_str().expect("text"), text),
            ("minimum", Value::Number(n)) => n.as_f64() >= rule.as_f64(),
            ("maximum", Value::Number(n)) => n.as_f64() <= rule.as_f64(),
            ("minItems", Value::Array(list)) => list.len() as u64 >= rule.as_u64().expect("a count"),
            ("maxItems", Value::Array(list)) => list.len() as u64 <= rule.as_u64().expect("a count"),
            ("minProperties", Value::Object(map)) => map.len() as u64 >= rule.as_u64().expect("a count"),
            ("maxProperties", Value::Object(map)) => map.len() as u64 <= rule.as_u64().expect("a count"),
            ("required", Value::Object(map)) => {
                rule.as_array().expect("names").iter().all(|key| map.contains_key(key.as_str().expect("a name")))
            }
            ("anyOf", _) => rule.as_array().expect("schemas").iter().any(|schema| fault(schema, value).is_none()),
            ("items", Value::Array(list)) => return list.iter().find_map(|item| fault(rule, item)),
            ("properties", Value::Object(map)) => {
                let rules = rule.as_object().expect("schemas");
                return map.iter().find_map(|(key, value)| rules.get(key).and_then(|rule| fault(rule, value)));
            }
            ("propertyNames", Value::Object(map)) => return map.keys().find_map(|key| fault(rule, &json!(key))),
            ("additionalProperties", Value::Object(map)) => return further(schema, rule, map),
            ("pattern" | "minimum" | "maximum" | "minItems" | "maxItems" | "minProperties" | "maxProperties", _) => {
                true
            }
            ("required" | "items" | "properties" | "propertyNames" | "additionalProperties", _) => true,
            (other, _) => panic!("the schema has {other}"),
        };
        (!fits).then(|| format!("{word} {rule}: {value}"))
    })
}

/// Patterns are compiled once.
fn matches(pattern: &str, text: &str) -> bool {
    thread_local!(static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        if !known.contains_key(pattern) {
            known.insert(pattern.to_owned(), Regex::new(pattern).expect("a pattern"));
        }
        known[pattern].is_match(text)
    })
}

fn further(schema: &Value, rule: &Value, map: &Map<String, Value>) -> Option<String> {
    let known = schema.get("properties").and_then(Value::as_object);
    let mut further = map.iter().filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
    match rule {
        Value::Bool(false) => further.next().map(|(key, _)| format!("{key} is not known")),
        rule => further.find_map(|(_, value)| fault(rule, value)),
    }
}
