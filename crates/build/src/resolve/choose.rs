//! Choice of the object in a filter file: by number (`lock.nf#2`), the only object, or the only one whose fields exist
//! in the method's messages.

use prost_reflect::MessageDescriptor;

use super::{FilterFile, field, path};
use crate::diagnostic::{BuildDiagnostic, Location};
use crate::filter::{CountedKey, NetFilter};
use crate::load::FilterMethod;

pub(super) fn choose<'f>(
    file: &'f FilterFile,
    index: Option<usize>,
    named: &FilterMethod,
    problems: &mut Vec<BuildDiagnostic>,
) -> Option<&'f NetFilter> {
    let filters = &file.filters;
    if let Some(index) = index {
        let found = index.checked_sub(1).and_then(|index| filters.get(index));
        if found.is_none() {
            let message = format!("`{}` does not exist", named.filter);
            let expected = format!("a number from 1 to {}", filters.len());
            problems.push(BuildDiagnostic::error(named.at.clone(), message).expected(expected).got(index.to_string()));
        }
        return found;
    }
    if let [only] = &filters[..] {
        return Some(only);
    }
    let (request, reply) = (named.method.input(), named.method.output());
    let fitting: Vec<_> = filters.iter().filter(|filter| fits(filter, &request, &reply)).collect();
    let hint = format!("select one by its number, counting from 1: filter = \"{}#1\"", named.filter);
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
            problems.push(BuildDiagnostic::error(named.at.clone(), message).expected(expected).hint(hint));
        }
        [first, second, ..] => {
            let message = format!("{} filters in `{}` fit {}", fitting.len(), named.filter, path(named));
            let ambiguous = BuildDiagnostic::error(named.at.clone(), message).hint(hint);
            problems
                .push(ambiguous.see(place(second), format!("this filter fits as well as the one at {}", place(first))));
        }
    }
    None
}

/// True if the filter names fields, and all of them are of these messages.
fn fits(filter: &NetFilter, request: &MessageDescriptor, reply: &MessageDescriptor) -> bool {
    let key = match &filter.cnt_fwd.key.value {
        CountedKey::Field(field) => Some(field),
        CountedKey::Null | CountedKey::ClientId => None,
    };
    let of_request = [filter.add_to.value.as_ref(), key].into_iter().flatten().map(|name| (name, request));
    let mut fields = of_request.chain(filter.get.value.iter().map(|name| (name, reply))).peekable();
    fields.peek().is_some() && fields.all(|(name, message)| field::after_message(name, message).is_some())
}
