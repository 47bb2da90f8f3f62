//! Counts of a run.

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
