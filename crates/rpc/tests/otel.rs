//! Tests of traces as OpenTelemetry spans.

use std::time::Duration;

use opentelemetry::trace::{SpanId, SpanKind, Status as SpanStatus, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use pathcall_rpc::Channel;
use pathcall_rpc::delegate::Transport;
use pathcall_rpc::delegate::otel::SpanExporter;
use pathcall_test_support::HANG;
use pathcall_test_support::stubs::PATHCALL;
use pathcall_test_support::stubs::docs_client::DocsClient;
use tonic::Request;

use crate::delegated::cluster::{DelegateCluster, all, wish};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Spans of one call with this `traceparent`, once exported.
async fn spans(names: &[&str], traceparent: Option<&str>, expected: usize) -> Vec<SpanData> {
    let cluster = DelegateCluster::new(Transport::Flows).await;
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let builder = Channel::builder(cluster.url.clone(), &PATHCALL).expect("a URL");
    let channel = builder.traces(SpanExporter::new(provider.tracer("test"))).connect().await.expect("connects");
    let mut request = Request::new(wish(names.iter().copied()));
    if let Some(parent) = traceparent {
        request.metadata_mut().insert("traceparent", parent.parse().expect("text"));
    }
    let _ = all(DocsClient::new(channel).lookup(request).await).await;
    let exported = || exporter.get_finished_spans().expect("it has not been shut down");
    let began = std::time::Instant::now();
    while exported().len() < expected {
        assert!(began.elapsed() < HANG, "{:?}", exported());
        tokio::task::yield_now().await;
    }
    exported()
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[tokio::test]
async fn call_joins_callers_trace() {
    let spans = spans(&["a", "b"], Some(&format!("00-{TRACE}-{PARENT}-01")), 4).await;
    assert_eq!(spans.len(), 4);
    assert!(spans.iter().all(|span| span.span_context.trace_id().to_string() == TRACE));
    let lookups = named(&spans, "rpctest.Docs/Lookup");
    let call = lookups.iter().find(|span| span.span_kind == SpanKind::Client).expect("the call");
    let lookup = lookups.iter().find(|span| span.span_kind == SpanKind::Server).expect("the look-up");
    assert_eq!((call.parent_span_id.to_string(), call.parent_span_is_remote), (PARENT.to_owned(), true));
    assert_eq!(lookup.parent_span_id, call.span_context.span_id());
    let fetches = named(&spans, "rpctest.Docs/Fetch");
    assert_eq!(fetches.len(), 2);
    for fetch in fetches {
        assert_eq!((fetch.parent_span_id, &fetch.span_kind), (lookup.span_context.span_id(), &SpanKind::Server));
        assert!(call.start_time <= lookup.start_time && lookup.start_time <= fetch.start_time);
        assert!(fetch.end_time >= fetch.start_time);
        assert!(fetch.attributes.iter().any(|attribute| attribute.key.as_str() == "server.port"), "{fetch:?}");
    }
    assert!(call.end_time > call.start_time + Duration::from_micros(1));
}

#[tokio::test]
async fn call_without_parent_is_own_trace_with_error_status() {
    let spans = spans(&["fail"], None, 3).await;
    let call = spans.iter().find(|span| span.span_kind == SpanKind::Client).expect("the call");
    assert_eq!(call.parent_span_id, SpanId::INVALID);
    assert!(matches!(call.status, SpanStatus::Error { .. }), "{:?}", call.status);
}

#[tokio::test]
async fn unsampled_trace_is_not_exported() {
    assert!(spans(&["a"], Some(&format!("00-{TRACE}-{PARENT}-00")), 0).await.is_empty());
}
