
/* Of parsers that go round, in programs that have them: an iterator, which the verifier follows however often it is asked
 * (Linux 6.4). Headers older than that do not know it; by what name it goes here, nobody asks. */
#ifndef bpf_for
struct rounds {
	u64 opaque;
};
#define bpf_iter_num rounds
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
#endif
#define ROUNDS ((struct bpf_iter_num *)&rounds)
