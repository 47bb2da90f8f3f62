// Pipeline of most functions (CLIP §IV-A): #include <pipeline.p4> after the controls `pre_processing` and
// `post_processing`. HEADERS is the type of the headers (default inet_t), PARSER a parser for it (default: that of
// inet.p4). The including file defines the type `metadata`.
#ifndef PIPELINE_P4
#define PIPELINE_P4

#include <inet.p4>

#ifndef HEADERS
#define HEADERS inet_t
#endif

#ifndef PARSER
#define PARSER PipelineParser
parser PipelineParser(packet_in packet, out HEADERS hdr, inout metadata md, inout standard_metadata_t sm) {
    InetParser() inet;
    state start {
        inet.apply(packet, hdr);
        transition accept;
    }
}
#endif

control PipelineVerify(inout HEADERS hdr, inout metadata md) {
    apply { }
}

control pipeline(inout HEADERS hdr, inout metadata md, inout standard_metadata_t sm) {
    pre_processing() pre;
    post_processing() post;
    request req;
    response res;
    bool flight;
    apply {
        pre.apply(hdr, md, sm, flight, req, res);
        if (flight) {
            remote_handler(req, res);
        }
        post.apply(hdr, md, sm, res);
    }
}

control PipelineEgress(inout HEADERS hdr, inout metadata md, inout standard_metadata_t sm) {
    apply { }
}

control PipelineCompute(inout HEADERS hdr, inout metadata md) {
    apply { }
}

control PipelineDeparser(packet_out packet, in HEADERS hdr) {
    apply { packet.emit(hdr); }
}

V1Switch(PARSER(), PipelineVerify(), pipeline(), PipelineEgress(), PipelineCompute(), PipelineDeparser()) main;

#endif
