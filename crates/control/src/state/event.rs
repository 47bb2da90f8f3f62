//! Inputs and outputs of the state machine.

use std::time::Duration;

use pathcall_proto::v1::{
    ApplicationGrant, ElementGrant, EndpointGrant, JoinPoolRequest, PoolGrant, RegisterApplicationRequest,
    RegisterElementRequest, RegisterEndpointRequest, ReleaseEndpointRequest, TokenKey,
};

use super::{Push, RecordChange, RegistrationRefusal};

/// Id of a call and of the stream that answers it. The driver assigns a different one to each call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlCallId(pub u64);

/// Input of the state machine.
#[derive(Debug, Clone)]
pub enum Input {
    /// Random key for the application or pool that is registered next.
    Key(TokenKey),
    /// A server registers an application; answered by [`Output::Application`], and again at each change.
    RegisterApplication(ControlCallId, RegisterApplicationRequest),
    /// A server joins a pool; answered by [`Output::Pool`], and again at each change.
    JoinPool(ControlCallId, JoinPoolRequest),
    /// An owner, or a server of a pool, registers a caller; answered by [`Output::Endpoint`].
    RegisterEndpoint(ControlCallId, RegisterEndpointRequest),
    /// An owner reports that a caller has left; answered by [`Output::Released`].
    ReleaseEndpoint(ControlCallId, ReleaseEndpointRequest),
    /// An element registers with its memory; answered by [`Output::Element`].
    RegisterElement(ControlCallId, RegisterElementRequest),
    /// The stream of a registration has ended.
    Ended(ControlCallId),
    /// An element has confirmed all changes up to this one.
    Confirmed {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
    },
    /// An element refuses a change.
    Refused {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
        /// Reason of the element.
        reason: String,
    },
    /// Another start of the element has answered the push.
    Restarted {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
    },
    /// An element has answered [`Output::AskLastFrames`].
    LastFrames {
        /// Id of the element.
        element: u32,
        /// Start of the element that has answered.
        boot_id: u64,
        /// Time since the last admitted frame of each application that had one (NetRPC §5.2.2).
        ages: Vec<(u32, Duration)>,
    },
    /// Time has passed.
    Tick,
}

/// Output of the state machine; outputs are delivered in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Grant to the owner of an application; an error ends its stream.
    Application(ControlCallId, Result<ApplicationGrant, RegistrationRefusal>),
    /// Grant to a server of a pool; an error ends its stream.
    Pool(ControlCallId, Result<PoolGrant, RegistrationRefusal>),
    /// Grant to an element; an error ends its stream.
    Element(ControlCallId, Result<ElementGrant, RegistrationRefusal>),
    /// Answer to the registration of a caller.
    Endpoint(ControlCallId, Result<EndpointGrant, RegistrationRefusal>),
    /// Answer to the release of a caller.
    Released(ControlCallId, Result<(), RegistrationRefusal>),
    /// Start sending pushes to this start of an element, and stop those of an earlier `Open`.
    Open {
        /// Id of the element.
        element: u32,
        /// Start of the element for which the pushes are meant.
        boot_id: u64,
        /// Address of its control service.
        control_address: String,
    },
    /// Send this to an element after all earlier pushes; repeat until it is answered.
    Push {
        /// Id of the element.
        element: u32,
        /// Number of the push.
        seq: u64,
        /// Change of the element's tables.
        push: Push,
    },
    /// Ask an element for the times of the last frames; [`Input::LastFrames`] answers. Not repeated.
    AskLastFrames {
        /// Id of the element.
        element: u32,
        /// Start of the element that is asked.
        boot_id: u64,
    },
    /// Stop sending to the element.
    Close {
        /// Id of the element.
        element: u32,
        /// Reason for taking it out of service.
        reason: String,
    },
    /// Tell the operator that a rack has servers or callers of a pool, and no element in service.
    RackWithoutElement {
        /// Name of the pool.
        pool: String,
        /// Name of the rack.
        rack: String,
    },
}

/// Result of an input: commit the changes, then deliver the outputs.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Effects {
    /// Changes, to be committed together.
    pub changes: Vec<RecordChange>,
    /// Outputs, to be delivered in order after the commit.
    pub outputs: Vec<Output>,
}
