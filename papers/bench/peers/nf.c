// SPDX-License-Identifier: Apache-2.0
/* Source NAT, routes and forwarding written by hand for a processor, as a server without Pathcall would run them:
 * frames of memory go in, rewritten copies go out. One thread, no system calls.
 *
 *   nf snat|fib|forward TABLE FRAMES TRACE OUTPUT ROUNDS
 *
 * All numbers are little-endian. TABLE: entries of 16 bytes, for snat (address, port | protocol << 16, new address, new
 * port), for fib (prefix, length, group, 0). FRAMES: for each its length and its bytes. TRACE: number of the frame of
 * each packet. OUTPUT: the rewritten frames, as FRAMES. Prints the processor's time of a packet, in ns.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ETH 14
#define FRAME_MAX 2048
#define HOPS 4

struct row { uint32_t word[4]; };
struct frame { uint32_t length; uint8_t *bytes; };

static uint32_t read32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return value; }
static uint16_t read16(const uint8_t *at) { uint16_t value; memcpy(&value, at, 2); return value; }
static void write32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }
static void write16(uint8_t *at, uint16_t value) { memcpy(at, &value, 2); }

static void *allocate(size_t count, size_t size) {
	void *memory = calloc(count, size);
	if (!memory) { fprintf(stderr, "nf: no memory for %zu entries\n", count); exit(1); }
	return memory;
}

/* RFC 1624: a checksum after a change of these 16 bits. */
static uint32_t replace16(uint32_t sum, uint16_t from, uint16_t to) { return sum + (uint16_t)~from + to; }
static uint32_t replace32(uint32_t sum, uint32_t from, uint32_t to) {
	return replace16(replace16(sum, from >> 16, to >> 16), (uint16_t)from, (uint16_t)to);
}
static uint16_t folded(uint32_t sum) {
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* SNAT: a hash table with open addressing, half full. */
struct mapping { uint64_t key; uint32_t addr; uint16_t port; uint16_t is_used; uint32_t seen; };
static struct mapping *mappings;
static uint32_t mapping_mask;

static uint64_t key_of(uint32_t addr, uint16_t port, uint8_t protocol) {
	return (uint64_t)addr << 32 | (uint64_t)port << 8 | protocol;
}

static struct mapping *find(uint64_t key) {
	for (uint32_t at = key * 0x9e3779b97f4a7c15u >> 32;; at++) {
		struct mapping *one = &mappings[at & mapping_mask];
		if (!one->is_used || one->key == key) return one;
	}
}

static void load_snat(const struct row *rows, uint32_t count) {
	uint32_t size = 2;
	while (size < 2 * count) size *= 2;
	mappings = allocate(size, sizeof *mappings);
	mapping_mask = size - 1;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t *word = rows[i].word;
		uint64_t key = key_of(word[0], (uint16_t)word[1], word[1] >> 16);
		*find(key) = (struct mapping){ key, word[2], word[3], 1, 0 };
	}
}

/* True if the frame leaves. */
static int snat(uint8_t *frame, uint32_t length, uint32_t now) {
	uint8_t *ip = frame + ETH;
	if (length < ETH + 20 || read16(frame + 12) != htons(0x0800) || ip[0] != 0x45 || ip[9] != 17) return 0;
	if (read16(ip + 6) & htons(0x3fff)) return 0;
	uint8_t *udp = ip + 20;
	if (length < ETH + 28) return 0;
	uint32_t from = ntohl(read32(ip + 12));
	uint16_t port = ntohs(read16(udp));
	if (from >> 24 != 10) return 0;
	struct mapping *to = find(key_of(from, port, 17));
	if (!to->is_used) return 0;
	to->seen = now;
	uint32_t sum = (uint16_t)~ntohs(read16(ip + 10));
	write16(ip + 10, htons(folded(replace32(sum, from, to->addr))));
	if (read16(udp + 6)) {
		sum = (uint16_t)~ntohs(read16(udp + 6));
		uint16_t checksum = folded(replace16(replace32(sum, from, to->addr), port, to->port));
		write16(udp + 6, htons(checksum ? checksum : 0xffff));
	}
	write32(ip + 12, htonl(to->addr));
	write16(udp, htons(to->port));
	return 1;
}

/* Routes: DIR-24-8. An entry is a group + 1, or with LONG set the number of a table of 256 for the last byte. */
#define LONG 0x80000000u
static uint32_t *top, *low;
static uint32_t low_count;
static struct { uint8_t addresses[12]; } hops[HOPS];

static int by_length(const void *one, const void *other) {
	return (int)((const struct row *)one)->word[1] - (int)((const struct row *)other)->word[1];
}

static void load_fib(struct row *rows, uint32_t count) {
	top = allocate(1 << 24, sizeof *top);
	low = allocate((size_t)256 * (count + 1), sizeof *low);
	/* Longer prefixes replace shorter ones. */
	qsort(rows, count, sizeof *rows, by_length);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t prefix = rows[i].word[0], bits = rows[i].word[1], group = rows[i].word[2] + 1;
		if (bits <= 24) {
			for (uint32_t at = 0; at < 1u << (24 - bits); at++) top[(prefix >> 8) + at] = group;
			continue;
		}
		uint32_t *entry = &top[prefix >> 8];
		if (!(*entry & LONG)) {
			for (int at = 0; at < 256; at++) low[(size_t)256 * low_count + at] = *entry;
			*entry = LONG | low_count++;
		}
		for (uint32_t at = 0; at < 1u << (32 - bits); at++)
			low[(size_t)256 * (*entry & ~LONG) + (prefix & 0xff) + at] = group;
	}
	/* All hops of the figure are behind one port, with these addresses: destination, source. */
	for (int hop = 0; hop < HOPS; hop++)
		memcpy(hops[hop].addresses, "\x02\0\0\0\0\xfe\x02\0\0\0\0\xfd", 12);
}

static int fib(uint8_t *frame, uint32_t length) {
	uint8_t *ip = frame + ETH;
	if (length < ETH + 28 || read16(frame + 12) != htons(0x0800) || ip[0] >> 4 != 4 || ip[8] <= 1) return 0;
	uint32_t dst = ntohl(read32(ip + 16)), entry = top[dst >> 8];
	if (entry & LONG) entry = low[(size_t)256 * (entry & ~LONG) + (dst & 0xff)];
	if (!entry) return 0;
	/* The flow's hop in its group: addresses, ports, protocol. */
	uint64_t hash = (uint64_t)read32(ip + 12) << 32 | read32(ip + 16);
	hash = (hash ^ (uint64_t)read32(ip + 20) << 8 ^ ip[9]) * 0x9e3779b97f4a7c15u;
	memcpy(frame, hops[hash >> 32 & (HOPS - 1)].addresses, 12);
	uint32_t sum = (uint16_t)~ntohs(read16(ip + 10));
	uint16_t before = ip[8] << 8 | ip[9], after = (uint16_t)(before - 0x100);
	write16(ip + 10, htons(folded(replace16(sum, before, after))));
	ip[8]--;
	return 1;
}

static int process(char kind, uint8_t *frame, uint32_t length, uint32_t now) {
	switch (kind) {
	case 's': return snat(frame, length, now);
	case 'f': return fib(frame, length);
	default: return length >= ETH;
	}
}

static uint8_t *read_file(const char *path, size_t *length) {
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END)) { perror(path); exit(1); }
	*length = (size_t)ftell(file);
	rewind(file);
	uint8_t *bytes = allocate(*length + 1, 1);
	if (fread(bytes, 1, *length, file) != *length) { perror(path); exit(1); }
	fclose(file);
	return bytes;
}

static double now_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc != 7) { fprintf(stderr, "nf snat|fib|forward TABLE FRAMES TRACE OUTPUT ROUNDS\n"); return 2; }
	char kind = strcmp(argv[1], "forward") ? argv[1][0] : 'n';
	size_t table_length, frames_length, trace_length;
	struct row *rows = (struct row *)read_file(argv[2], &table_length);
	uint8_t *bytes = read_file(argv[3], &frames_length);
	uint32_t *trace = (uint32_t *)read_file(argv[4], &trace_length);
	uint32_t packets = trace_length / 4, count = 0, rounds = atoi(argv[6]);
	if (kind == 's') load_snat(rows, table_length / sizeof *rows);
	if (kind == 'f') load_fib(rows, table_length / sizeof *rows);
	struct frame *frames = allocate(frames_length / 4 + 1, sizeof *frames);
	for (size_t at = 0; at < frames_length; at += 4 + frames[count++].length)
		frames[count] = (struct frame){ read32(bytes + at), bytes + at + 4 };

	static uint8_t out[FRAME_MAX];
	FILE *output = fopen(argv[5], "wb");
	if (!output) { perror(argv[5]); return 1; }
	for (uint32_t i = 0; i < count; i++) {
		memcpy(out, frames[i].bytes, frames[i].length);
		uint32_t length = process(kind, out, frames[i].length, 1) ? frames[i].length : 0;
		fwrite(&length, 4, 1, output);
		fwrite(out, 1, length, output);
	}
	if (fclose(output)) { perror(argv[5]); return 1; }

	uint64_t left = 0;
	double began = now_ns();
	for (uint32_t round = 0; round < rounds; round++)
		for (uint32_t i = 0; i < packets; i++) {
			const struct frame *frame = &frames[trace[i]];
			memcpy(out, frame->bytes, frame->length);
			left += process(kind, out, frame->length, round + 2);
			__asm__ volatile("" : : "r"(out) : "memory");
		}
	double took = now_ns() - began;
	if (left != (uint64_t)rounds * packets) { fprintf(stderr, "nf: %lu packets left\n", left); return 1; }
	printf("%.3f\n", took / left);
	return 0;
}
