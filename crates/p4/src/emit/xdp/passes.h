/* How often the packet on this processor came in before: left by a program that calls itself for that. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} passes_here SEC(".maps");

int function(struct xdp_md *xdp);

/* The program itself, for that. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} pipelines SEC(".maps") = {.values = {(void *)&function}};
