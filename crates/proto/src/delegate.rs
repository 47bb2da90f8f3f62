//! Types for delegated methods, which `pathcall-build` generates.

/// Delegated method, whose calls servers may pass on (DPC ch. 3). Every server that gets a request replies to the same
/// caller, so with the same type: any number of replies if the method returns a stream, and exactly one in all if it is
/// unary.
pub trait RpcMethod: 'static {
    /// Type of the request.
    type Request: prost::Message + Default + 'static;
    /// Type of one reply.
    type Response: prost::Message + Default + 'static;
    /// HTTP/2 path: `/pkg.Service/Method`.
    const PATH: &'static str;
    /// Whether executing a call twice has the same effect as once: the option `idempotency_level` says so.
    const IDEMPOTENT: bool = false;
}
