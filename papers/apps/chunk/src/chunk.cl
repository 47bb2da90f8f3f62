// Kernels that pack and unpack chunks of files; `header.rs`, `words.rs` and `lz4.rs` define the formats.
// Input may be arbitrary: every offset is checked against the length before use.

#define HEAD 48u
#define RAW_MAX (16u << 20)
#define BLOCK 512u
#define ABOUT 8u
#define ROW 16u
#define DELTA 64u
#define LZ4_BLOCK 65536u
#define PLAIN 0u
#define STORED 1u
#define LZ4 2u
#define WORDS 3u

FUNCTION uint big_endian(GLOBAL const uchar *at) {
  return (uint)at[0] << 24 | (uint)at[1] << 16 | (uint)at[2] << 8 | at[3];
}

FUNCTION uint little_endian(GLOBAL const uchar *at) {
  return (uint)at[3] << 24 | (uint)at[2] << 16 | (uint)at[1] << 8 | at[0];
}

// True if a chunk has a valid header; sets the number of unpacked bytes.
FUNCTION int head(GLOBAL const uchar *chunk, uint bytes, uint *raw) {
  if (bytes < HEAD || big_endian(chunk) != 0x50434631u || chunk[5] | chunk[6] | chunk[7]) return 0;
  if (big_endian(chunk + 40) | big_endian(chunk + 44)) return 0;
  *raw = big_endian(chunk + 32);
  return *raw <= RAW_MAX && big_endian(chunk + 24) < big_endian(chunk + 28);
}

// Copy by all work items, interleaved.
FUNCTION void copy(GLOBAL const uchar *from, GLOBAL uchar *to, uint bytes, uint item, uint items) {
  for (uint i = item; i < bytes; i += items) to[i] = from[i];
}

FUNCTION uint folded(uint step) { return (step << 1) ^ (0u - (step >> 31)); }

FUNCTION uint bits(uint value) {
  uint bits = 0;
  for (uint shift = 16; shift; shift >>= 1) {
    if (value >> shift) {
      value >>= shift;
      bits += shift;
    }
  }
  return bits + value;
}

// Base and width of a block, with DELTA for differences from the row before.
FUNCTION uint narrow(GLOBAL const uint *words, uint *base) {
  uint least = ~0u, greatest = 0, steps = 0;
  for (uint i = 0; i < 128; i++) {
    uint word = words[i], before = i < 4 ? words[0] : words[i - 4];
    least = least < word ? least : word;
    greatest = greatest > word ? greatest : word;
    steps |= folded(word - before);
  }
  uint spread = bits(greatest - least), step = bits(steps);
  *base = spread <= step ? least : words[0];
  return spread <= step ? spread : step | DELTA;
}

// Concatenates the values of a block.
FUNCTION void squeeze(GLOBAL const uint *words, uint base, uint about, GLOBAL uint *rows) {
  uint width = about & ~DELTA;
  if (width == 0) return;
  for (uint lane = 0; lane < 4; lane++) {
    uint word = 0, filled = 0, row = 0, before = base;
    for (uint i = lane; i < 128; i += 4) {
      uint value = about & DELTA ? folded(words[i] - before) : words[i] - base;
      before = words[i];
      word |= value << filled;
      filled += width;
      if (filled >= 32) {
        rows[4 * row++ + lane] = word;
        filled -= 32;
        // Bits of this value that are not yet in a row.
        word = filled ? value >> (width - filled) : 0;
      }
    }
  }
}

// Inverse of the packing above.
FUNCTION void expand(GLOBAL const uint *rows, uint base, uint about, GLOBAL uint *words) {
  uint width = about & ~DELTA;
  uint mask = width ? ~0u >> (32 - width) : 0;
  for (uint lane = 0; lane < 4; lane++) {
    uint before = base;
    for (uint i = 0; i < 32; i++) {
      uint bit = i * width, row = bit / 32, shift = bit % 32, value = 0;
      if (width) value = rows[4 * row + lane] >> shift;
      if (shift + width > 32) value |= rows[4 * row + 4 + lane] << (32 - shift);
      value &= mask;
      if (about & DELTA) {
        before += (value >> 1) ^ (0u - (value & 1));
        value = before;
      } else {
        value += base;
      }
      words[4 * i + lane] = value;
    }
  }
}

KERNEL void pack(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_max,
                 GLOBAL uint *output_bytes) {
  SHARED uint starts[GROUP];
  SHARED uint all;
  uint raw = 0;
  if (GROUP_ID || !head(input, input_bytes, &raw) || input[4] != PLAIN) return;
  if (input_bytes - HEAD != raw || output_max < input_bytes) return;

  GLOBAL const uchar *from = input + HEAD;
  GLOBAL uchar *to = output + HEAD;
  GLOBAL uint *about = (GLOBAL uint *)to;
  uint blocks = raw / BLOCK, rest = raw % BLOCK, rows = 0;
  // Each work item has adjacent blocks.
  uint each = (blocks + GROUP - 1) / GROUP;
  uint first = ITEM * each < blocks ? ITEM * each : blocks;
  uint last = first + each < blocks ? first + each : blocks;
  for (uint block = first; block < last; block++) {
    uint base;
    uint width = narrow((GLOBAL const uint *)(from + BLOCK * block), &base);
    about[2 * block] = base;
    about[2 * block + 1] = width;
    rows += width & ~DELTA;
  }
  starts[ITEM] = rows;
  SYNC;
  if (ITEM == 0) {
    uint row = 0;
    for (uint i = 0; i < GROUP; i++) {
      uint next = row + starts[i];
      starts[i] = row;
      row = next;
    }
    all = row;
  }
  SYNC;
  uint packed = ABOUT * blocks + ROW * all + rest;
  if (packed >= raw) {
    copy(from, to, raw, ITEM, GROUP);
    packed = raw;
  } else {
    uint row = starts[ITEM];
    for (uint block = first; block < last; block++) {
      uint width = about[2 * block + 1];
      GLOBAL uint *place = (GLOBAL uint *)(to + ABOUT * blocks + ROW * row);
      squeeze((GLOBAL const uint *)(from + BLOCK * block), about[2 * block], width, place);
      about[2 * block + 1] = width | row << 8;
      row += width & ~DELTA;
    }
    copy(from + BLOCK * blocks, to + packed - rest, rest, ITEM, GROUP);
  }
  copy(input, output, HEAD, ITEM, GROUP);
  SYNC;
  if (ITEM == 0) {
    output[4] = packed == raw ? STORED : WORDS;
    *output_bytes = HEAD + packed;
  }
}

// Unpacks one block of LZ4; returns whether it is valid.
FUNCTION int lz4(GLOBAL const uchar *in, uint n, GLOBAL uchar *out, uint m) {
  uint i = 0, o = 0;
  while (i < n) {
    uint token = in[i++], literals = token >> 4, more;
    if (literals == 15) {
      do {
        if (i >= n || literals > m) return 0;
        more = in[i++];
        literals += more;
      } while (more == 255);
    }
    if (literals > n - i || literals > m - o) return 0;
    for (uint k = 0; k < literals; k++) out[o + k] = in[i + k];
    i += literals;
    o += literals;
    if (i == n) return o == m;
    if (n - i < 2) return 0;
    uint back = (uint)in[i] | (uint)in[i + 1] << 8, length = (token & 15) + 4;
    i += 2;
    if (length == 19) {
      do {
        if (i >= n || length > m) return 0;
        more = in[i++];
        length += more;
      } while (more == 255);
    }
    if (back == 0 || back > o || length > m - o) return 0;
    // Byte by byte, because source and destination may overlap.
    for (uint k = 0; k < length; k++) out[o + k] = out[o + k - back];
    o += length;
  }
  return 0;
}

// The first group validates the chunk, while the other groups unpack.
KERNEL void unpack(GLOBAL const uchar *input, uint input_bytes, GLOBAL uchar *output, uint output_max,
                   GLOBAL uint *output_bytes) {
  SHARED uint wrong;
  uint raw = 0;
  if (!head(input, input_bytes, &raw) || output_max < HEAD + raw) return;
  uint form = input[4], bytes = input_bytes - HEAD, item = GROUP_ID * GROUP + ITEM, items = GROUPS * GROUP;
  GLOBAL const uchar *from = input + HEAD;
  GLOBAL uchar *to = output + HEAD;
  if (ITEM == 0) wrong = 0;
  SYNC;
  if (form == STORED && bytes == raw) {
    copy(from, to, raw, item, items);
  } else if (form == WORDS) {
    uint blocks = raw / BLOCK, rest = raw % BLOCK, fixed = ABOUT * blocks + rest;
    if (bytes < fixed || (bytes - fixed) % ROW) return;
    uint rows = (bytes - fixed) / ROW;
    GLOBAL const uint *about = (GLOBAL const uint *)from;
    for (uint block = ITEM; GROUP_ID == 0 && block < blocks; block += GROUP) {
      uint says = about[2 * block + 1], width = says & 255u & ~DELTA, start = says >> 8;
      if (width > 32 || start > rows || width > rows - start) wrong = 1;
    }
    for (uint block = item; block < blocks; block += items) {
      uint says = about[2 * block + 1], width = says & 255u & ~DELTA, start = says >> 8;
      if (width > 32 || start > rows || width > rows - start) continue;
      GLOBAL const uint *place = (GLOBAL const uint *)(from + ABOUT * blocks + ROW * start);
      expand(place, about[2 * block], says & 255u, (GLOBAL uint *)(to + BLOCK * block));
    }
    copy(from + bytes - rest, to + raw - rest, rest, item, items);
  } else if (form == LZ4) {
    uint blocks = (raw + LZ4_BLOCK - 1) / LZ4_BLOCK;
    if (bytes < 4 * blocks) return;
    for (uint block = ITEM; GROUP_ID == 0 && block < blocks; block += GROUP) {
      uint place = 4 * blocks, length = little_endian(from + 4 * block), here;
      for (uint i = 0; i < block && place <= bytes; i++) {
        here = little_endian(from + 4 * i);
        place = here > bytes - place ? bytes + 1 : place + here;
      }
      uint rest = raw - LZ4_BLOCK * block, m = rest < LZ4_BLOCK ? rest : LZ4_BLOCK;
      if (place > bytes || length > bytes - place || (block + 1 == blocks && place + length != bytes)) {
        wrong = 1;
      } else if (length == m) {
        copy(from + place, to + LZ4_BLOCK * block, m, 0, 1);
      } else if (!lz4(from + place, length, to + LZ4_BLOCK * block, m)) {
        wrong = 1;
      }
    }
    if (blocks == 0 && bytes) return;
  } else {
    return;
  }
  if (GROUP_ID) return;
  copy(input, output, HEAD, ITEM, GROUP);
  SYNC;
  if (ITEM == 0 && !wrong) {
    output[4] = PLAIN;
    *output_bytes = HEAD + raw;
  }
}
