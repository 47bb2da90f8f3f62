//! Which object of a filter file a method means: the one it numbers (`lock.nf#2`), the only one, or
//! the only one whose fields are in the method's messages.

use prost_reflect::MessageDescriptor;

use super::{FilterFile, field, path};
use crate::diagnostic::{Diagnostic, Location};
use crate::filter::{Key, NetFilter};
use crate::load::Named;

pub(super) fn choose<'f>(
    file: &'f FilterFile,
    index: Option<usize>,
    named: &Named,
    problems: &mut Vec<Diagnostic>,
) -> Option<&'f NetFilter> {
    let filters = &file.filters;
    if let Some(index) = index {
        let found = index.checked_sub(1).and_then(|index| filters.get(index));
        if found.is_none() {
            let message = format!("`{}` does not exist", named.filter);
            let expected = format!("a number from 1 to {}", filters.len());
            problems.push(Diagnostic::error(named.at.clone(), message).expected(expected).got(index.to_string()));
        }
        return found;
    }
    if let [only] = &filters[..] {
        return Some(only);
    }
    let (request, reply) = (named.method.input(), named.method.output());
    let fitting: Vec<_> = filters.iter().filter(|filter| fits(filter, &request, &reply)).collect();
    let hint = format!("say which, counting from 1: filter = \"{}#1\"", named.filter);
    let place = |filter: &NetFilter| -> Location { file.source.locate(filter.span.start) };
    match &fitting[..] {
        [only] => return Some(only),
        [] => {
            let message = format!(
                "none of the {} filters in `{}` names fields of {} alone",
                filters.len(),
                named.filter,
                path(named)
            );
            let expected = format!("fields of `{}` and `{}`", request.name(), reply.name());
            problems.push(Diagnostic::error(named.at.clone(), message).expected(expected).hint(hint));
        }
        [first, second, ..] => {
            let message = format!("{} filters in `{}` fit {}", fitting.len(), named.filter, path(named));
            let ambiguous = Diagnostic::error(named.at.clone(), message).hint(hint);
            problems.push(ambiguous.see(place(second), format!("this one fits as well as that at {}", place(first))));
        }
    }
    None
}

/// Every field that the filter names is of these messages, and it names one.
fn fits(filter: &NetFilter, request: &MessageDescriptor, reply: &MessageDescriptor) -> bool {
    let key = match &filter.cnt_fwd.key.value {
        Key::Field(field) => Some(field),
        Key::Null | Key::ClientId => None,
    };
    let of_request = [filter.add_to.value.as_ref(), key].into_iter().flatten().map(|name| (name, request));
    let mut fields = of_request.chain(filter.get.value.iter().map(|name| (name, reply))).peekable();
    fields.peek().is_some() && fields.all(|(name, message)| field::within(name, message).is_some())
}
