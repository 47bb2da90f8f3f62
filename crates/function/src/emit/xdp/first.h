/* A packet that came by an interface. */
SEC("xdp")
int function(struct xdp_md *xdp)
{
	__u32 zero = 0, *passes = bpf_map_lookup_elem(&passes_here, &zero);

	if (passes)
		*passes = 0;
	bpf_tail_call(xdp, &pipelines, 0);
	return XDP_ABORTED;
}
