//! Set of fields of a message: the fields that later steps need, and that therefore travel.

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, FieldDescriptor, ReflectMessage, Value};

/// Set of fields of a message and of its inner messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSet {
    /// The whole message.
    whole: bool,
    /// Fields by their numbers; not used if `whole`.
    fields: BTreeMap<u32, FieldSet>,
}

impl FieldSet {
    /// Adds the field at the end of a path; an empty path is the whole message.
    pub(crate) fn add(&mut self, path: &[FieldDescriptor]) {
        match path {
            _ if self.whole => {}
            [] => *self = Self { whole: true, fields: BTreeMap::new() },
            [first, rest @ ..] => self.fields.entry(first.number()).or_default().add(rest),
        }
    }

    /// Whether no field is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        !self.whole && self.fields.is_empty()
    }

    /// Removes from a message all fields that are not in the set, known or unknown.
    pub(crate) fn keep(&self, message: &mut DynamicMessage) {
        if self.whole {
            return;
        }
        message.take_unknown_fields().for_each(drop);
        message.take_extensions().for_each(drop);
        let set: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
        for field in set {
            match self.fields.get(&field.number()) {
                None => message.clear_field(&field),
                Some(inner) if inner.whole => {}
                Some(inner) => {
                    if let Value::Message(within) = message.get_field_mut(&field) {
                        inner.keep(within);
                    }
                }
            }
        }
    }

    /// Names of the fields, each with its path: `call.item`.
    pub(crate) fn names(&self, prefix: &str, descriptor: &prost_reflect::MessageDescriptor) -> Vec<String> {
        if self.whole {
            return vec![prefix.to_owned()];
        }
        let fields = self.fields.iter().filter_map(|(number, inner)| Some((descriptor.get_field(*number)?, inner)));
        let names = fields.map(|(field, inner)| {
            let path = format!("{prefix}.{}", field.name());
            match field.kind().as_message() {
                Some(within) if !field.is_map() && !field.is_list() => inner.names(&path, within),
                _ => vec![path],
            }
        });
        names.flatten().collect()
    }
}

/// Copy of a message with the fields of a set only.
pub(crate) fn kept(message: &DynamicMessage, fields: &FieldSet) -> DynamicMessage {
    if fields.is_empty() {
        return DynamicMessage::new(message.descriptor());
    }
    let mut message = message.clone();
    fields.keep(&mut message);
    message
}
