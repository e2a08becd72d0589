/* caching_vectors.h -- short sequences of requests, each with what PyTorch's allocator of torch 2.11.0, 2.13.0,
 * 2.14.1 and 2.15.0 made of it (executed without a GPU: tests/golden/allocator/README.md).
 *
 * Events: `a x N` allocates N bytes as x, `a x N@S` on stream S; `f x y` frees; `r x@S` records stream S;
 * `done S`: the work of stream S is done; `empty`: empty_cache().  M is MiB.  Numbers are bytes; a peak of 0 is that of
 * the current figure. */
#ifndef DPX_TEST_CACHING_VECTORS_H
#define DPX_TEST_CACHING_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

struct vector {
    const char *name;
    struct { bool exp; int64_t max_split, divisions, large, capacity; double gc, fraction; } with;   /* MiB; 0: default */
    const char *events;
    int64_t allocated, active, reserved, allocated_peak, reserved_peak;
    int segments, ooms, retries;        /* segments -1: not asked */
};

static const struct vector vectors[] = {
{ "1: the smallest block is 512 bytes", {0}, "a x 100", 512, 512, 2097152, 0, 0, 1, 0, 0 },
{ "2: sizes are multiples of 512 bytes", {0}, "a x 513", 1024, 1024, 2097152, 0, 0, 1, 0, 0 },
{ "3: 1 MiB is still small", {0}, "a x 1M; a y 1M", 2097152, 2097152, 2097152, 0, 0, 1, 0, 0 },
{ "4: a byte above 1 MiB is large", {0}, "a x 1048577", 1049088, 1049088, 20971520, 0, 0, 1, 0, 0 },
{ "5: 10 MiB fit behind 2 MiB in one segment", {0}, "a x 100; a y 2M; a z 10M", 12583424, 12583424, 23068672, 0, 0, 2, 0, 0 },
{ "6: below 10 MiB a segment of 20 MiB", {0}, "a x 10485248", 10485248, 10485248, 20971520, 0, 0, 1, 0, 0 },
{ "7: from 10 MiB on a segment of its own", {0}, "a x 10M", 10485760, 10485760, 10485760, 0, 0, 1, 0, 0 },
{ "8: a rest of half a MiB is not split off", {0}, "a x 19.5M", 20971520, 20971520, 20971520, 0, 0, 1, 0, 0 },
{ "9: nor is one of exactly 1 MiB", {0}, "a x 21M", 23068672, 23068672, 23068672, 0, 0, 1, 0, 0 },
{ "10: a rest of 1.5 MiB is", {0}, "a x 20.5M", 21495808, 21495808, 23068672, 0, 0, 1, 0, 0 },
{ "11: GPT-2's embedding in fp32", {0}, "a x 154389504", 155189248, 155189248, 155189248, 0, 0, 1, 0, 0 },
{ "12: an MLP weight of Llama-7B in bf16", {0}, "a x 90177536", 90177536, 90177536, 90177536, 0, 0, 1, 0, 0 },
{ "13: the best fit, then its rest", {0}, "a x 30M; a y 40M; a z 50M; f x y z; a w 35M; a v 5M", 41943040, 41943040, 125829120, 125829120, 0, 3, 0, 0 },
{ "14: neighbours merge", {0}, "a x 2M; a y 3M; a z 4M; f y; f x; a w 5M", 9437184, 9437184, 20971520, 0, 0, 1, 0, 0 },
{ "15: the last merges with the tail", {0}, "a x 2M; a y 3M; a z 4M; f x; f z; a w 6M", 9437184, 9437184, 20971520, 0, 0, 1, 0, 0 },
{ "16: streams do not share", {0}, "a x 64M; f x; a y 64M@1", 67108864, 67108864, 134217728, 0, 0, 2, 0, 0 },
{ "17: a recorded block stays active", {0}, "a x 64M; r x@1; f x", 0, 67108864, 67108864, 67108864, 0, 1, 0, 0 },
{ "18: and is not used again", {0}, "a x 64M; r x@1; f x; a y 64M", 67108864, 134217728, 134217728, 0, 0, 2, 0, 0 },
{ "19: until its event has completed", {0}, "a x 64M; r x@1; f x; done 1; a y 64M", 67108864, 67108864, 67108864, 0, 0, 1, 0, 0 },
{ "20: which only a request notices", {0}, "a x 64M; r x@1; f x; done 1", 0, 67108864, 67108864, 67108864, 0, 1, 0, 0 },
{ "21: a full device: what is cached is given back", { .capacity = 100 }, "a x 60M; f x; a y 80M", 83886080, 83886080, 83886080, 0, 0, 1, 0, 1 },
{ "22: which may not be enough", { .capacity = 100 }, "a x 60M; a y 30M; f x; a z 72M", 31457280, 31457280, 31457280, 94371840, 94371840, 1, 1, 1 },
{ "23: a segment in use cannot be given back", { .capacity = 100 }, "a x 60M; f x; a y 30M; a z 60M", 31457280, 31457280, 62914560, 62914560, 62914560, 1, 1, 1 },
{ "24: the retry waits for events", { .capacity = 100 }, "a x 60M; r x@1; f x; a y 80M", 83886080, 83886080, 83886080, 0, 0, 1, 0, 1 },
{ "25: empty_cache", {0}, "a x 60M; a y 30M; f x; empty", 31457280, 31457280, 31457280, 94371840, 94371840, 1, 0, 0 },
{ "26: growing sizes reserve them all", {0}, "a x 90M; f x; a y 100M; f y; a z 110M; f z", 0, 0, 314572800, 115343360, 314572800, 3, 0, 0 },
{ "27: shrinking sizes only the first", {0}, "a x 110M; f x; a y 100M; f y; a z 90M; f z", 0, 0, 115343360, 115343360, 0, 1, 0, 0 },
{ "28: expandable: growing sizes extend one", { .exp = true }, "a x 90M; f x; a y 100M; f y; a z 110M; f z", 0, 0, 125829120, 115343360, 0, 0, 0, 0 },
{ "29: expandable: pages of 2 and 20 MiB", { .exp = true }, "a x 100; a y 2M; a z 10M", 12583424, 12583424, 23068672, 0, 0, 0, 0, 0 },
{ "30: expandable: 30 then 50 MiB are three pages", { .exp = true }, "a x 30M; f x; a y 50M", 52428800, 52428800, 62914560, 0, 0, 0, 0, 0 },
{ "31: expandable: a hole below stays", { .exp = true }, "a x 30M; a y 30M; f x; a z 40M", 73400320, 73400320, 104857600, 0, 0, 0, 0, 0 },
{ "32: expandable: a hole is used again", { .exp = true }, "a x 30M; a y 30M; f x; a z 30M", 62914560, 62914560, 62914560, 0, 0, 0, 0, 0 },
{ "33: expandable: whole free pages are given back", { .exp = true }, "a x 30M; a y 30M; f x; empty", 31457280, 31457280, 41943040, 62914560, 62914560, 0, 0, 0 },
{ "34: expandable: each stream rounds to pages", { .exp = true }, "a x 64M; f x; a y 64M@1", 67108864, 67108864, 167772160, 0, 0, 0, 0, 0 },
{ "35: expandable: rests of half a MiB are split off", { .exp = true }, "a x 19.5M", 20447232, 20447232, 20971520, 0, 0, 0, 0, 0 },
{ "36: expandable: GPT-2's embedding in fp32", { .exp = true }, "a x 154389504", 154389504, 154389504, 167772160, 0, 0, 0, 0, 0 },
{ "37: expandable: fits where segments do not", { .exp = true, .capacity = 100 }, "a x 60M; f x; a y 30M; a z 60M", 94371840, 94371840, 104857600, 0, 0, 0, 0, 0 },
{ "38: expandable: pages of large_segment_size", { .exp = true, .large = 64 }, "a x 2M", 2097152, 2097152, 67108864, 0, 0, 0, 0, 0 },
{ "39: max_split_size: large blocks are not split", { .max_split = 64 }, "a x 200M; f x; a y 30M", 31457280, 31457280, 241172480, 209715200, 0, 2, 0, 0 },
{ "40: max_split_size: a near fit is handed out whole", { .max_split = 64 }, "a x 200M; f x; a y 190M", 209715200, 209715200, 209715200, 0, 0, 1, 0, 0 },
{ "41: max_split_size: 20 MiB are not near", { .max_split = 64 }, "a x 200M; f x; a y 170M", 178257920, 178257920, 387973120, 209715200, 0, 2, 0, 0 },
{ "42: max_split_size: one is released without a retry", { .max_split = 64, .capacity = 300 }, "a x 200M; f x; a y 170M", 178257920, 178257920, 178257920, 209715200, 209715200, 1, 0, 0 },
{ "43: max_split_size: the size itself is oversize", { .max_split = 64 }, "a x 64M; f x; a y 30M", 31457280, 31457280, 98566144, 67108864, 0, 2, 0, 0 },
{ "44: roundup_power2_divisions of 4", { .divisions = 4 }, "a x 104857601", 117440512, 117440512, 117440512, 0, 0, 1, 0, 0 },
{ "45: roundup_power2_divisions of 8", { .divisions = 8 }, "a x 104857601", 109051904, 109051904, 109051904, 0, 0, 1, 0, 0 },
{ "46: large_segment_size", { .large = 64 }, "a x 2M", 2097152, 2097152, 67108864, 0, 0, 1, 0, 0 },
{ "47: a fraction of the device is a limit", { .capacity = 100, .fraction = 0.5 }, "a x 60M", 0, 0, 0, 0, 0, 0, 1, 1 },
{ "48: garbage is collected above its threshold", { .capacity = 100, .gc = 0.5, .fraction = 0.9 }, "a x 60M; f x; a y 30M@1", 31457280, 31457280, 31457280, 62914560, 62914560, 1, 0, 0 },
{ "49: but not without a fraction", { .capacity = 100, .gc = 0.5 }, "a x 60M; f x; a y 30M@1", 31457280, 31457280, 94371840, 62914560, 0, 2, 0, 0 },
{ "50: two of 8 MiB share a segment", {0}, "a x 8M; a y 8M; a z 8M; f x y z; empty", 0, 0, 0, 25165824, 41943040, 0, 0, 0 },
{ "51: nothing in use is released", {0}, "a x 8M; a y 8M; a z 8M; f x; f z; a w 12M; empty", 20971520, 20971520, 41943040, 25165824, 0, 2, 0, 0 },
{ "52: small requests never use large blocks", {0}, "a x 20M; f x; a y 512", 512, 512, 23068672, 20971520, 0, 2, 0, 0 },
{ "53: 4097 of 512 bytes take two segments", {0}, "many 4097 512", 2097664, 2097664, 4194304, 0, 0, 2, 0, 0 },
{ "54: halves in a hole of two", {0}, "a p 86M; a g 86M; f p; a q 43M; a r 43M; f g; a s 100M", 195035136, 195035136, 285212672, 0, 0, 3, 0, 0 },
{ "55: expandable: halves in a hole of two", { .exp = true }, "a p 86M; a g 86M; f p; a q 43M; a r 43M; f g; a s 100M", 195035136, 195035136, 209715200, 0, 0, 0, 0, 0 },
{ "56: FSDP2's prefetch has two buffers on each stream", {0}, "a i 100M@1; a u 100M; a j 100M@1; f i; a v 100M; f u; a k 100M@1; f j; a w 100M; f v; f k; f w", 0, 0, 419430400, 314572800, 0, 4, 0, 0 },
{ "57: a workspace that is not kept is split", {0}, "a w 32M; f w; a t 10M; a v 32M; f v; a u 30M", 41943040, 41943040, 67108864, 44040192, 0, 2, 0, 0 },
};

#endif
