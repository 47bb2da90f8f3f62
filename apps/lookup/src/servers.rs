//! Servers of the look-up: an index server has its share of the words, a store its share of the documents.
//!
//! ```text
//! Find ─► index of the first word ─► index of the next … ─┬─► store ─ Found ─► caller
//!         narrows down                narrows down        └─► store ─ Found ─► caller
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use apps_report::hops::KeyPlacement;
use pathcall::delegate::{DelegatedCall, Directory, Handlers, NodeTarget};
use tonic::Status;

use crate::documents::{self, Document};
use crate::pb::delegated::{LookupFetch, LookupFind, LookupNarrow};
use crate::pb::{Documents, Found, Query, Wanted};

/// Prefix of index servers' names.
pub(crate) const INDEX: &str = "index-";
/// Prefix of stores' names.
pub(crate) const STORE: &str = "store-";

/// Handlers of a server with this name, with its share of the documents.
pub(crate) fn handlers(
    name: &str,
    placement: &KeyPlacement,
    documents: &[Document],
    directory: &Directory,
) -> Result<Handlers> {
    let handlers = Handlers::new().directory(directory.clone());
    if name.starts_with(INDEX) {
        let index = Arc::new(Index::new(documents, |word| placement.has(name, INDEX, word)));
        let (narrowing, directory) = (Arc::clone(&index), directory.clone());
        let find = move |query, call| {
            let done = find(&index, &directory, query, &call);
            async move { done }
        };
        let narrow = move |query, call: DelegatedCall<Query>| {
            let narrowed = narrowing.narrow(query);
            async move { call.reply(narrowed?).await }
        };
        Ok(handlers.handle::<LookupFind, _, _>(find).handle::<LookupNarrow, _, _>(narrow))
    } else if name.starts_with(STORE) {
        let own = documents.iter().filter(|document| placement.has(name, STORE, &document.path));
        let store: BTreeMap<String, Document> = own.map(|own| (own.path.clone(), own.clone())).collect();
        let store = Arc::new(store);
        Ok(handlers.handle::<LookupFetch, _, _>(move |wanted, call| fetch(Arc::clone(&store), wanted, call)))
    } else {
        bail!("invalid server name {name:?} (expected prefix {INDEX} or {STORE})")
    }
}

/// Narrows the query down, and passes it on to the server of the next word, or to the stores.
fn find(index: &Index, directory: &Directory, query: Query, call: &DelegatedCall<Found>) -> Result<(), Status> {
    let query = index.narrow(query)?;
    if let Some(word) = next(&query) {
        return call.delegate::<LookupFind>(NodeTarget::key(INDEX, word), &query);
    }
    for (store, wanted) in wanted(query, directory)? {
        call.delegate::<LookupFetch>(store, &wanted)?;
    }
    Ok(())
}

/// Replies with each document.
async fn fetch(
    store: Arc<BTreeMap<String, Document>>,
    wanted: Wanted,
    call: DelegatedCall<Found>,
) -> Result<(), Status> {
    for path in &wanted.paths {
        let document = store.get(path).ok_or_else(|| Status::not_found(format!("no document {path} in this store")))?;
        call.reply(documents::show(document, &wanted.words)).await?;
    }
    Ok(())
}

/// Word whose index server is next; `None` if no word or no document is left.
pub(crate) fn next(query: &Query) -> Option<&String> {
    let nothing = query.among.as_ref().is_some_and(|among| among.paths.is_empty());
    query.left.first().filter(|_| !nothing)
}

/// Requests to the stores of a narrowed query.
pub(crate) fn wanted(query: Query, directory: &Directory) -> Result<BTreeMap<SocketAddr, Wanted>, Status> {
    let mut stores: BTreeMap<SocketAddr, Wanted> = BTreeMap::new();
    let paths = query.among.unwrap_or_default().paths;
    for path in paths.into_iter().take(query.limit as usize) {
        let store = directory.find(&NodeTarget::key(STORE, &path))?;
        let wanted = stores.entry(store).or_insert_with(|| Wanted { paths: Vec::new(), words: query.words.clone() });
        wanted.paths.push(path);
    }
    Ok(stores)
}

/// Index: paths by word, in order.
#[derive(Debug)]
struct Index(BTreeMap<String, BTreeSet<String>>);

impl Index {
    fn new(documents: &[Document], own: impl Fn(&str) -> bool) -> Self {
        let mut index: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        // The owner of each word is looked up once.
        let mut is_own: BTreeMap<&String, bool> = BTreeMap::new();
        for document in documents {
            for word in &document.words {
                if *is_own.entry(word).or_insert_with(|| own(word)) {
                    index.entry(word.clone()).or_default().insert(document.path.clone());
                }
            }
        }
        Self(index)
    }

    /// Narrows by the first word, which belongs to this server, and by other words of this server.
    fn narrow(&self, mut query: Query) -> Result<Query, Status> {
        if query.left.is_empty() {
            return Err(Status::invalid_argument("the query has no words"));
        }
        let first = query.left.remove(0);
        let (here, left) = query.left.into_iter().partition(|word| self.0.contains_key(word));
        query.left = left;
        for word in std::iter::once(first).chain::<Vec<String>>(here) {
            let having = self.0.get(&word);
            let paths = match query.among.take() {
                None => having.into_iter().flatten().cloned().collect(),
                Some(among) => {
                    let has = |path: &String| having.is_some_and(|having| having.contains(path));
                    among.paths.into_iter().filter(has).collect()
                }
            };
            query.among = Some(Documents { paths });
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(words: &[&str]) -> Query {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Query { left: words.clone(), words, among: None, limit: 10 }
    }

    #[test]
    fn index_narrows_by_its_own_words() {
        let documents = ["one red", "one blue", "red blue one"].iter().enumerate();
        let documents: Vec<_> = documents.map(|(i, text)| Document::new(i.to_string(), (*text).to_owned())).collect();
        let index = Index::new(&documents, |word| word != "blue");
        let narrowed = index.narrow(query(&["one", "blue", "red"])).expect("words");
        assert_eq!(narrowed.left, ["blue"], "word of another server");
        assert_eq!(narrowed.among.as_ref().expect("some").paths, ["0", "2"]);
        assert_eq!(next(&narrowed), Some(&"blue".to_owned()));
        let nothing = index.narrow(query(&["nowhere", "blue"])).expect("words");
        assert_eq!(next(&nothing), None, "no candidates left");
        assert!(index.narrow(query(&[])).is_err());
    }
}
