/* The ones' complement sum of all from `at` on; `odd`: the first byte is the second of a word. */
static __noinline u64 payload_sum(struct xdp_md *xdp, __u32 at, __u32 odd)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__s64 sum = 0;

	at = WITHIN(at);
	for (int i = 0; i < LENGTH_MAX / 256; i++) {
		if (data + at + 256 > end)
			break;
		sum = bpf_csum_diff(0, 0, data + at, 256, sum);
		at += 256;
	}
	for (int i = 0; i < 8; i++) {
		if (data + at + 32 > end)
			break;
		sum = bpf_csum_diff(0, 0, data + at, 32, sum);
		at += 32;
	}
	sum = (__u32)sum;
	for (int i = 0; i < 16; i++) {
		if (data + at + 2 > end)
			break;
		sum += *(__u16 *)(data + at);
		at += 2;
	}
	if (data + at + 1 <= end)
		sum += *(__u8 *)(data + at);
	sum = fold(sum);
	/* Words were in the machine's order. */
	return odd ? sum : bpf_ntohs(sum);
}
