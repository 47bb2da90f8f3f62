//! Methods as types: what `pathcall-build` writes for those that servers may pass on.

/// A method whose calls servers may pass on (DPC ch. 3). Its replies are a stream; whoever a call is passed on
/// to replies to the same caller, so with the same type.
pub trait Method: 'static {
    /// What it is asked.
    type Request: prost::Message + Default + 'static;
    /// One of its replies.
    type Response: prost::Message + Default + 'static;
    /// The HTTP/2 path: `/pkg.Service/Method`.
    const PATH: &'static str;
}
