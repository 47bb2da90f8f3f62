//! Exporter of call traces to OpenTelemetry; feature `otel`.
//!
//! ```text
//! traceparent of the request ─▶ client span: the call ─┬─▶ server span: a request
//!                                                      └─▶ server span ─▶ server span …
//! ```
//!
//! Servers export nothing: the caller has the whole tree, and exports it after the end of the call.

use std::time::SystemTime;

use http::HeaderMap;
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer,
};
use opentelemetry::{Context, KeyValue};
use tonic::Code;

use super::trace::{CallTrace, TraceSink};
use super::{CallSpan, CallTree};

/// Length of a `traceparent`, bytes.
const TRACEPARENT: usize = 55;

/// Exporter of traces through an OpenTelemetry tracer: one span for the call, and below it one for each request.
///
/// If the call's metadata has a `traceparent` (W3C Trace Context), the spans join that trace; a `traceparent` that is
/// not sampled turns tracing off for the call. Start times are those of [`CallTrace`]: the begin of the call by the
/// caller's clock, plus the age of the call at the begin of the span.
///
/// ```no_run
/// # use pathcall_rpc as pathcall;
/// # use pathcall_test_support::stubs as pb;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # use opentelemetry::trace::TracerProvider;
/// # use pathcall::delegate::otel::SpanExporter;
/// # let provider = opentelemetry_sdk::trace::SdkTracerProvider::default();
/// let spans = SpanExporter::new(provider.tracer("shop"));
/// let channel = pathcall::Channel::builder("http://127.0.0.1:50051", &pb::PATHCALL)?.traces(spans).connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SpanExporter<T> {
    tracer: T,
}

impl<T> SpanExporter<T> {
    /// Exporter through this tracer.
    pub fn new(tracer: T) -> Self {
        Self { tracer }
    }
}

impl<T> TraceSink for SpanExporter<T>
where
    T: Tracer + Send + Sync + 'static,
    T::Span: Send + Sync + 'static,
{
    fn wants(&self, metadata: &HeaderMap) -> bool {
        let parent = metadata.get("traceparent").and_then(|value| parse_traceparent(value.to_str().ok()?));
        parent.is_none_or(|parent| parent.is_sampled())
    }

    fn take(&self, traced: &CallTrace) {
        let CallTrace { method, began, took, status, traceparent, tree } = traced;
        let parent = traceparent.as_deref().and_then(parse_traceparent);
        let above = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let name = method.trim_start_matches('/').to_owned();
        let mut call = self.begin(name, SpanKind::Client, *began, &above);
        call.set_attribute(KeyValue::new("rpc.system", "grpc"));
        call.set_attribute(KeyValue::new("rpc.grpc.status_code", *status as i64));
        call.set_attribute(KeyValue::new("pathcall.trace.whole", tree.complete));
        if *status != Code::Ok {
            call.set_status(Status::error(status.description()));
        }
        let above = above.with_span(call);
        self.export(tree, *began, &above);
        above.span().end_with_timestamp(*began + *took);
    }
}

impl<T> SpanExporter<T>
where
    T: Tracer,
    T::Span: Send + Sync + 'static,
{
    /// Exports the requests of a call, each below the request that led to it.
    fn export(&self, tree: &CallTree, began: SystemTime, call: &Context) {
        let mut open: Vec<Context> = Vec::new();
        for (depth, span) in &tree.spans {
            open.truncate(*depth);
            let CallSpan { label, begin, waited, run_time, server, requests, responses, .. } = span;
            let name = label.trim_start_matches('/').to_owned();
            let mut request = self.begin(name, SpanKind::Server, began + *begin, open.last().unwrap_or(call));
            request.set_attribute(KeyValue::new("server.address", server.ip().to_string()));
            request.set_attribute(KeyValue::new("server.port", i64::from(server.port())));
            request.set_attribute(KeyValue::new("pathcall.waited_us", waited.as_micros() as i64));
            request.set_attribute(KeyValue::new("pathcall.requests", i64::from(*requests)));
            request.set_attribute(KeyValue::new("pathcall.replies", i64::from(*responses)));
            let request = call.with_span(request);
            request.span().end_with_timestamp(began + *begin + *waited + *run_time);
            open.push(request);
        }
    }

    fn begin(&self, name: String, kind: SpanKind, at: SystemTime, above: &Context) -> T::Span {
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_start_time(at);
        self.tracer.build_with_context(builder, above)
    }
}

/// Parses a `traceparent`: `00-<trace id>-<span id>-<flags>`; later versions may have more fields.
fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let (text, rest) = text.split_at_checked(TRACEPARENT)?;
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |part: &str, len: usize| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (part.len() == len && part.bytes().all(digit)).then_some(())
    };
    hex(version, 2).and(hex(trace, 32)).and(hex(span, 16)).and(hex(flags, 2))?;
    let more = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
    if version == "ff" || !more {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traceparent_parses_as_w3c_specifies() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = parse_traceparent(good).expect("a parent");
        assert_eq!(context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled() && context.is_remote());
        assert!(!parse_traceparent(&good.replace("-01", "-00")).expect("a parent").is_sampled());
        // A later version may have more fields.
        assert!(parse_traceparent(&format!("{}-x", good.replacen("00", "01", 1))).is_some());
        let zero = "0".repeat(32);
        for bad in [
            "",
            "00",
            &good[..54],
            &format!("{good}-x"),
            &format!("ff{}", &good[2..]),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &zero),
            &good.replace("00f067aa0ba902b7", "0000000000000000"),
            &good.replace('b', "B"),
            &good.replace('-', "_"),
        ] {
            assert!(parse_traceparent(bad).is_none(), "{bad}");
        }
    }
}
