//! Tests that the JSON Schema and the parser agree.

use std::collections::BTreeSet;

use serde_json::Value;

use super::keywords::OPS;
use super::read::{CNT_FWD_FIELDS, FIELDS, MODIFY_FIELDS};
use super::{PRECISION_MAX, SCHEMA, parse};

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("the schema is JSON")
}

fn keys(properties: &Value) -> BTreeSet<&str> {
    properties.as_object().expect("properties").keys().map(String::as_str).collect()
}

fn words(values: &Value) -> Vec<&str> {
    values.as_array().expect("enum").iter().map(|value| value.as_str().expect("a word")).collect()
}

fn modify_object(schema: &Value) -> &Value {
    &schema["properties"]["modify"]["oneOf"][1]
}

#[test]
fn schema_and_parser_have_same_fields() {
    let schema = schema();
    let properties = &schema["properties"];
    assert_eq!(keys(properties), FIELDS.into());
    assert_eq!(keys(&properties["CntFwd"]["properties"]), CNT_FWD_FIELDS.into());
    assert_eq!(keys(&modify_object(&schema)["properties"]), MODIFY_FIELDS.into());
    for object in [&schema, &properties["CntFwd"], modify_object(&schema)] {
        assert_eq!(object["additionalProperties"], false);
    }
    assert_eq!(words(&schema["required"]), ["AppName"]);
    assert_eq!(words(&modify_object(&schema)["required"]), ["op"]);
}

#[test]
fn schema_and_parser_have_same_values() {
    let schema = schema();
    let properties = &schema["properties"];
    let ops = words(&modify_object(&schema)["properties"]["op"]["enum"]);
    assert_eq!(ops, OPS.map(|(name, _)| name));
    for op in ops {
        let para = if ["nop", "BNOT"].contains(&op) { "" } else { r#", "para": 1"# };
        accepts(&format!(r#""modify": {{"op": "{op}"{para}}}"#));
    }
    let either = |field: &str, known: &Value| {
        for word in words(known) {
            accepts(&field.replace('?', word));
        }
        refuses(&field.replace('?', "other"));
    };
    for (name, property) in properties.as_object().expect("properties") {
        let field = format!(r#""{name}": ?"#);
        if property["enum"].is_array() {
            either(&field.replace('?', r#""?""#), &property["enum"]);
        } else if property["type"] == "boolean" {
            accepts(&field.replace('?', "true"));
            accepts(&field.replace('?', "false"));
            refuses(&field.replace('?', r#""true""#));
        }
    }
    either(r#""modify": "?""#, &properties["modify"]["oneOf"][0]["enum"]);
    let cnt_fwd = &properties["CntFwd"]["properties"];
    either(r#""CntFwd": {"to": "?"}"#, &cnt_fwd["to"]["enum"]);
    either(r#""CntFwd": {"key": "?"}"#, &cnt_fwd["key"]["anyOf"][0]["enum"]);
}

#[test]
fn schema_and_parser_have_same_bounds() {
    let schema = schema();
    let precision = &schema["properties"]["Precision"];
    assert_eq!((precision["minimum"].as_i64(), precision["maximum"].as_u64()), (Some(0), Some(PRECISION_MAX.into())));
    let bounds = |field: &str, schema: &Value| {
        let (low, high) = (schema["minimum"].as_i64().unwrap(), schema["maximum"].as_i64().unwrap());
        accepts(&field.replace('?', &low.to_string()));
        accepts(&field.replace('?', &high.to_string()));
        refuses(&field.replace('?', &(low - 1).to_string()));
        refuses(&field.replace('?', &(high + 1).to_string()));
        refuses(&field.replace('?', "1.5"));
    };
    bounds(r#""Precision": ?"#, precision);
    let topk = &schema["properties"]["topk"];
    assert_eq!((topk["exclusiveMinimum"].as_i64(), topk["exclusiveMaximum"].as_i64()), (Some(0), Some(1)));
    for share in ["0.000001", "0.01", "1e-3", "0.999"] {
        accepts(&format!(r#""topk": {share}"#));
    }
    for share in ["0", "1", "-0.5", "2", r#""0.5""#] {
        refuses(&format!(r#""topk": {share}"#));
    }
    bounds(r#""CntFwd": {"threshold": ?}"#, &schema["properties"]["CntFwd"]["properties"]["threshold"]);
    bounds(r#""modify": {"op": "MAX", "para": ?}"#, &modify_object(&schema)["properties"]["para"]);
}

fn accepts(field: &str) {
    let text = format!(r#"{{"AppName": "a", {field}}}"#);
    assert!(parse(&text).is_ok(), "{text}");
}

fn refuses(field: &str) {
    let text = format!(r#"{{"AppName": "a", {field}}}"#);
    assert!(parse(&text).is_err(), "{text}");
}
