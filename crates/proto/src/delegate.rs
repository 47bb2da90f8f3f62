//! Types for delegated methods, which `pathcall-build` generates.

/// Delegated method, whose calls servers may pass on (DPC ch. 3). Its replies are a stream. Every server that gets a
/// request replies to the same caller, so with the same type.
pub trait Method: 'static {
    /// Type of the request.
    type Request: prost::Message + Default + 'static;
    /// Type of one reply.
    type Response: prost::Message + Default + 'static;
    /// HTTP/2 path: `/pkg.Service/Method`.
    const PATH: &'static str;
}
