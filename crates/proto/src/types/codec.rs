//! Codec of generated stubs: prost's codec with one allocation per message.
//!
//! prost's own encoder doubles the buffer until the message fits, so an array is copied twice and its pages are touched
//! twice.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Codec that encodes `T` and decodes `U` as protobuf.
#[derive(Debug, Clone)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = WholeEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        WholeEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::default())
    }
}

/// Encoder that reserves the whole message first.
#[derive(Debug, Clone)]
pub struct WholeEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for WholeEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.reserve(message.encoded_len());
        message.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }
}
