//! What comes into the state and what goes out of it.

use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointGrant, JoinPoolRequest, PoolGrant, RegisterApplicationRequest,
    RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointRequest, TokenKey,
};

use super::{Change, Push, Refusal};

/// Names a call and the stream that answers it. The driver chooses it; each call another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What can happen.
#[derive(Debug, Clone)]
pub enum Input {
    /// Bits that nobody can guess, for the application or pool that is registered next.
    Key(TokenKey),
    /// A server takes an application; answered by [`Output::Application`], again at each change.
    RegisterApplication(CallId, RegisterApplicationRequest),
    /// A server joins a pool; answered by [`Output::Pool`], again at each change.
    JoinPool(CallId, JoinPoolRequest),
    /// An owner, or a server of a pool, registers a caller; answered by [`Output::Endpoint`].
    RegisterEndpoint(CallId, RegisterEndpointRequest),
    /// An owner reports that a caller left; answered by [`Output::Released`].
    ReleaseEndpoint(CallId, ReleaseEndpointRequest),
    /// An element offers its memory; answered by [`Output::Element`].
    RegisterElement(CallId, RegisterElementRequest),
    /// The stream of a registration has ended.
    Ended(CallId),
    /// The element has made all changes up to this one.
    Confirmed {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
    },
    /// The element refuses a change.
    Refused {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
        /// What it says.
        reason: String,
    },
    /// Another start of the element answers than the one the push was meant for.
    Restarted {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
    },
    /// Time has passed.
    Tick,
}

/// What is to be done about it, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// To the owner of an application; an error ends its stream.
    Application(CallId, Result<ApplicationGrant, Refusal>),
    /// To a server of a pool; an error ends its stream.
    Pool(CallId, Result<PoolGrant, Refusal>),
    /// To an element; an error ends its stream.
    Element(CallId, Result<ElementGrant, Refusal>),
    /// Where a caller stands.
    Endpoint(CallId, Result<EndpointGrant, Refusal>),
    /// A caller was released.
    Released(CallId, Result<(), Refusal>),
    /// Start sending pushes to this start of an element, and stop those of an earlier `Open`.
    Open {
        /// Id of the element.
        element: u32,
        /// The start of it that pushes are meant for.
        boot_id: u64,
        /// Where its control service is.
        control_address: String,
    },
    /// Send this to an element after all earlier ones; try again until it is answered.
    Push {
        /// Id of the element.
        element: u32,
        /// Number to confirm it by.
        seq: u64,
        /// The change.
        push: Push,
    },
    /// Stop sending to the element.
    Close {
        /// Id of the element.
        element: u32,
        /// Why it is given up.
        reason: String,
    },
}

/// What came of an input: commit the changes, then deliver the outputs.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Effects {
    /// To be committed together.
    pub changes: Vec<Change>,
    /// To be delivered then, in order.
    pub outputs: Vec<Output>,
}
