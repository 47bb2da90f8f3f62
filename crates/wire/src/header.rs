//! Macro `header!`: makes a view, a plain struct and a layout table from one list of fields.

/// Field of a header. The C and P4 headers are generated from these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpec {
    /// Name, the same in all languages.
    pub name: &'static str,
    /// Byte offset from the start of the header.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// Declares a header: `view`, `repr`, total length and `field (setter): type @ offset`.
macro_rules! header {
    (
        $(#[$vm:meta])* view $view:ident;
        $(#[$rm:meta])* repr $repr:ident;
        length $len:literal;
        $( $(#[$fm:meta])* $field:ident ($set:ident): $ty:ty, $off:literal; )*
    ) => {
        $(#[$vm])*
        #[derive(Debug, Clone, Copy)]
        pub struct $view<T>(T);

        $(#[$rm])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $repr { $( $(#[$fm])* pub $field: $ty, )* }

        impl $view<()> {
            /// Length in bytes.
            pub const LEN: usize = $len;
            /// Fields with their offsets, in order.
            pub const LAYOUT: &'static [crate::FieldSpec] = &[ $( crate::FieldSpec {
                name: stringify!($field), offset: $off, len: core::mem::size_of::<$ty>(),
            }, )* ];
        }

        impl<T: AsRef<[u8]>> $view<T> {
            $( $(#[$fm])* #[inline] #[must_use] pub fn $field(&self) -> $ty {
                const N: usize = core::mem::size_of::<$ty>();
                let bytes: &[u8] = self.0.as_ref();
                <$ty>::from_be_bytes(*bytes[$off..].first_chunk::<N>().expect("checked by new_checked"))
            } )*

            /// The plain struct with the same values.
            #[inline] #[must_use]
            pub fn repr(&self) -> $repr {
                let bytes: &[u8] = self.0.as_ref();
                // One bounds check for all fields.
                let view = $view(bytes.first_chunk::<$len>().expect("checked by new_checked"));
                $repr { $( $field: view.$field(), )* }
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $view<T> {
            $( #[doc = concat!("Writes `", stringify!($field), "`.")]
            #[inline] pub fn $set(&mut self, value: $ty) {
                const N: usize = core::mem::size_of::<$ty>();
                let bytes: &mut [u8] = self.0.as_mut();
                bytes[$off..$off + N].copy_from_slice(&value.to_be_bytes());
            } )*
        }

        impl $repr {
            /// Writes the header into the first bytes of `out`.
            ///
            /// # Panics
            /// When `out` is shorter than the header.
            pub fn emit(&self, out: &mut [u8]) {
                let mut view = $view(&mut out[..$len]);
                $( view.$set(self.$field); )*
            }
        }
    };
}
pub(crate) use header;
