//! What is counted in a run.

use std::time::Duration;

/// A struct of counts, and sums of many.
macro_rules! tally {
    (
        $( #[$doc:meta] )*
        pub struct $name:ident { $( $( #[$of:meta] )* pub $count:ident: $type:ty, )* }
    ) => {
        $( #[$doc] )*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name { $( $( #[$of] )* pub $count: $type, )* }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $( self.$count += other.$count; )*
            }
        }
    };
}
pub(crate) use tally;

tally! {
    /// Counts of one run, or of many.
    pub struct Tally {
        /// Calls that ended or were cancelled.
        pub calls: u64,
        /// Frames sent over links.
        pub frames: u64,
        /// Frames lost: by chance, damaged, on links that were cut or in full queues.
        pub lost: u64,
        /// Those of them that were lost on links that were cut.
        pub cut: u64,
        /// Frames that arrived twice.
        pub repeated: u64,
        /// Copies that arrived hundreds of frames later.
        pub late: u64,
        /// Damaged and forged frames and junk that arrived.
        pub hostile: u64,
        /// Frames that were refused for their token, as far as those who refused them still live.
        pub unauthentic: u64,
        /// Times that a host stood still.
        pub pauses: u64,
        /// Frames held back.
        pub reordered: u64,
        /// Frames that met congestion.
        pub marked: u64,
        /// Frames that callers sent again.
        pub retransmits: u64,
        /// Lanes and pairs that took effect in the element.
        pub lanes_element: u64,
        /// Lanes and pairs that took effect in software.
        pub lanes_software: u64,
        /// Bytes of lanes that callers sent, each counted once.
        pub lane_bytes_sent: u64,
        /// Bytes of lanes that came to owners.
        pub lane_bytes_received: u64,
        /// Keys that gave their registers to others.
        pub keys_evicted: u64,
        /// Frames that were to be worked on in passing.
        pub inline: u64,
        /// Those of them that no element met.
        pub bare: u64,
        /// Times that an owner went on without an element that was silent.
        pub suspended: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}
