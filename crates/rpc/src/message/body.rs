//! Body of a request, read whole.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use tonic::Status;
use tonic::body::Body;

/// Reads the body of a request of the method `path`.
///
/// # Errors
/// OUT_OF_RANGE if it has more than `max` bytes or its caller has left; the status with which a layer ended it.
pub(crate) async fn read_request(path: &str, body: Body, max: usize) -> Result<Bytes, Status> {
    let body = Limited::new(body, max).collect().await.map_err(|error| match error.downcast::<Status>() {
        Ok(status) => *status,
        Err(error) => Status::out_of_range(format!("{path}: cannot read a request of up to {max} bytes: {error}")),
    })?;
    Ok(body.to_bytes())
}
