//! Unmodified services of the example of a pipe (`examples/pipe`), which record their requests.

use std::sync::{Arc, Mutex};

use crate::stubs::shop::auth_server::{Auth, AuthServer};
use crate::stubs::shop::billing_server::{Billing, BillingServer};
use crate::stubs::shop::stock_server::{Stock, StockServer};
use crate::stubs::shop::{Bill, Paid, Reservation, Reserved, Token, User, paid};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_stream::Empty;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Name of an item that is never reserved: the handler waits.
pub const FOR_EVER: &str = "for ever";

/// Services of a shop, with the requests that they have received.
#[derive(Debug, Clone, Default)]
pub struct Shop {
    seen: Arc<Mutex<Vec<(String, MetadataMap)>>>,
    /// Notified when a handler has started to wait.
    pub waits: Arc<Notify>,
    /// Notified when a waiting handler was dropped.
    pub dropped: Arc<Notify>,
}

/// Notifies when it is dropped.
struct DropGuard(Arc<Notify>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Shop {
    fn record<T: std::fmt::Debug>(&self, request: Request<T>) -> T {
        let (metadata, _, message) = request.into_parts();
        self.seen.lock().expect("no panic").push((format!("{message:?}"), metadata));
        message
    }

    /// Texts of the requests, in order of arrival.
    pub fn requests(&self) -> Vec<String> {
        self.seen().into_iter().map(|(request, _)| request).collect()
    }

    /// Requests with their metadata, in order of arrival.
    ///
    /// # Panics
    /// A handler has panicked.
    pub fn seen(&self) -> Vec<(String, MetadataMap)> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Starts a server of all three services, and returns its URL.
    ///
    /// # Panics
    /// There is no free port.
    pub async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Server::builder()
            .add_service(AuthServer::new(self.clone()))
            .add_service(StockServer::new(self.clone()))
            .add_service(BillingServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        url
    }
}

#[tonic::async_trait]
impl Auth for Shop {
    async fn check(&self, request: Request<Token>) -> Result<Response<User>, Status> {
        match &*self.record(request).token {
            "secret" => Ok(Response::new(User { name: "ann".to_owned(), roles: vec!["buyer".to_owned()] })),
            _ => Err(Status::unauthenticated("unknown token")),
        }
    }
}

#[tonic::async_trait]
impl Stock for Shop {
    async fn reserve(&self, request: Request<Reservation>) -> Result<Response<Reserved>, Status> {
        let item = self.record(request).item.unwrap_or_default();
        if item.name == FOR_EVER {
            let _guard = DropGuard(Arc::clone(&self.dropped));
            self.waits.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(Response::new(Reserved { id: 7, price: 2.5 * f64::from(item.count) }))
    }

    type WatchStream = Empty<Result<Reserved, Status>>;

    async fn watch(&self, _: Request<Reservation>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("no pipe calls it"))
    }
}

#[tonic::async_trait]
impl Billing for Shop {
    async fn charge(&self, request: Request<Bill>) -> Result<Response<Paid>, Status> {
        let Bill { user, amount, .. } = self.record(request);
        if amount > 10.0 {
            return Err(Status::resource_exhausted("too expensive"));
        }
        Ok(Response::new(Paid { how: Some(paid::How::Account(format!("account of {user}"))) }))
    }
}
