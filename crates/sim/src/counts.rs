//! Counts of a run.

use std::time::Duration;

/// Declares a struct of counts, with a sum over runs.
macro_rules! counts {
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
pub(crate) use counts;

counts! {
    /// Counts of one run, or of many.
    pub struct MapCounts {
        /// Calls that ended or were cancelled.
        pub calls: u64,
        /// Frames sent over links.
        pub frames: u64,
        /// Frames lost: by chance, damaged, on links that were cut or in full queues.
        pub lost: u64,
        /// Lost frames whose link was cut.
        pub cut: u64,
        /// Frames that were repeated.
        pub repeated: u64,
        /// Copies that arrived hundreds of frames later.
        pub late: u64,
        /// Hostile datagrams that arrived: damaged and forged frames, random bytes.
        pub hostile: u64,
        /// Frames that were dropped for their token; receivers that died are not included.
        pub unauthentic: u64,
        /// Pauses of machines.
        pub pauses: u64,
        /// Frames that were held back.
        pub reordered: u64,
        /// Frames that were marked for congestion.
        pub marked: u64,
        /// Frames that callers retransmitted.
        pub retransmits: u64,
        /// Lanes and pairs that took effect in the element.
        pub lanes_element: u64,
        /// Lanes and pairs that took effect in software.
        pub lanes_software: u64,
        /// Lane bytes that callers sent, without retransmissions.
        pub lane_bytes_sent: u64,
        /// Lane bytes that owners received.
        pub lane_bytes_received: u64,
        /// Keys that lost their registers to others.
        pub keys_evicted: u64,
        /// Frames for processing by an element on their route.
        pub inline: u64,
        /// Inline frames that passed no element.
        pub bare: u64,
        /// Times that an owner continued without a silent element.
        pub suspended: u64,
        /// Virtual time.
        pub virtual_time: Duration,
    }
}
