/* warp.cc -- what the 32 lanes of a warp do together: each leaves its part, the last to come
 * does what concerns all, and each takes its own.
 *
 * Fragments are laid out as the PTX ISA has them (9.7.14.5.8, matrix fragments of mma.m16n8k16
 * with .bf16 and .f16; 9.7.14.5.15, ldmatrix); exec/cuda/common.cuh repeats the layout. */
#include <assert.h>

#include <vector>

#include "exec/kernels/half.h"
#include "internal.h"

static block_state &B = emu_block;

/* Waits until all lanes have come to the same; the last of them calls last(parity) first.  The parity
 * tells which of the two sets of words this round uses. */
template <typename F> static unsigned together(unsigned mask, int what, int line, const F &mine, bool *am_last)
{
    int me = B.current, w = me / 32;
    warp_state &warp = B.warp[w];
    unsigned parity = warp.rounds & 1;

    if (mask != 0xffffffff)
        emu_die("mask %08x at line %d: all lanes of a warp take part", mask, line);
    if (B.threads - 32 * w < 32)
        emu_die("a warp of %d threads at line %d: blocks are of a multiple of 32", B.threads - 32 * w, line);
    if (warp.arrived == 0) {
        warp.what = what;
        warp.line = line;
    } else if (warp.what != what || warp.line != line) {
        emu_die("is at line %d while other lanes of its warp are at line %d", line, warp.line);
    }
    mine(warp, parity);
    *am_last = ++warp.arrived == 32;
    if (!*am_last) {
        B.waits[me] = { (short)line, (short)what };
        emu_wait();
        B.waits[me].what = WAITS_NOT;
    }
    return parity;
}

/* The last lane lets the others go on. */
static void apart(int w)
{
    B.warp[w].arrived = 0;
    B.warp[w].rounds++;
    B.warp[w].votes[B.warp[w].rounds & 1] = 0;
    emu_release_warp(w);
}

void emu_warp_barrier(unsigned mask, int line)
{
    bool last;

    together(mask, WAITS_SYNCWARP, line, [](warp_state &, unsigned) {}, &last);
    if (last)
        apart(B.current / 32);
}

unsigned emu_ballot(unsigned mask, bool vote, int line)
{
    int w = B.current / 32, lane = B.current % 32;
    bool last;
    unsigned parity = together(mask, WAITS_BALLOT, line,
                               [=](warp_state &s, unsigned p) { s.votes[p] |= (unsigned)vote << lane; }, &last);

    if (last)
        apart(w);
    return B.warp[w].votes[parity];
}

/* PTX ISA 9.7.9.6, shfl.sync: a lane outside the segment gives the own value. */
static int source(int lane, int kind, int by, int width)
{
    int first = lane & ~(width - 1), end = first + width;
    int from = kind == EMU_SHUFFLE_FROM ? first + (by & (width - 1)) : kind == EMU_SHUFFLE_XOR ? lane ^ by
             : kind == EMU_SHUFFLE_DOWN ? lane + by : lane - by;

    if (kind == EMU_SHUFFLE_UP ? from < first : from >= end)
        return lane;
    return from;
}

uint64_t emu_shuffle(unsigned mask, uint64_t mine, int kind, int by, int width, int line)
{
    int w = B.current / 32, lane = B.current % 32;
    bool last;

    if (width < 1 || width > 32 || (width & (width - 1)))
        emu_die("a shuffle of width %d at line %d: a power of 2 up to 32 is needed", width, line);
    unsigned parity = together(mask, WAITS_SHUFFLE, line,
                               [=](warp_state &s, unsigned p) { s.word[p][lane] = mine; }, &last);
    if (last)
        apart(w);
    return B.warp[w].word[parity][source(lane, kind, by, width) & 31];
}

/* ---- mma: each leaves the address of its registers, the last computes for all ---- */

struct fragments { float *d; const uint32_t *a, *b; };
static fragments parts[WARPS][32];

typedef float widen_fn(uint16_t bits);

static void multiply(const fragments *part, widen_fn *widen)
{
    float a[16][16], b[16][8], d[16][8];
    auto low = [=](uint32_t word) { return widen((uint16_t)word); };
    auto high = [=](uint32_t word) { return widen((uint16_t)(word >> 16)); };

    for (int t = 0; t < 32; t++) {
        int g = t / 4, c = 2 * (t % 4);
        for (int i = 0; i < 4; i++) {
            a[g + 8 * (i % 2)][c + 8 * (i / 2)] = low(part[t].a[i]);
            a[g + 8 * (i % 2)][c + 8 * (i / 2) + 1] = high(part[t].a[i]);
            d[g + 8 * (i / 2)][c + i % 2] = part[t].d[i];
        }
        for (int i = 0; i < 2; i++) {
            b[c + 8 * i][g] = low(part[t].b[i]);
            b[c + 8 * i + 1][g] = high(part[t].b[i]);
        }
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                d[m][n] += a[m][k] * b[k][n];
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++)
            part[t].d[i] = d[t / 4 + 8 * (i / 2)][2 * (t % 4) + i % 2];
}

void emu_mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2], bool fp16, int line)
{
    int w = B.current / 32, lane = B.current % 32;
    bool last;

    together(0xffffffff, WAITS_MMA, line, [=](warp_state &, unsigned) { parts[w][lane] = { d, a, b }; }, &last);
    if (last) {
        multiply(parts[w], fp16 ? half_from_fp16 : half_from_bf16);
        apart(w);
    }
}

/* ---- ldmatrix ---- */

struct rows { uint32_t *r; const uint16_t *row; };
static rows loads[WARPS][32];

static void load_matrices(const rows *load, bool transposed)
{
    for (int t = 0; t < 32; t++)
        for (int i = 0; i < 4; i++) {
            int g = t / 4, c = 2 * (t % 4);
            uint32_t first = transposed ? load[8 * i + c].row[g] : load[8 * i + g].row[c];
            uint32_t second = transposed ? load[8 * i + c + 1].row[g] : load[8 * i + g].row[c + 1];
            load[t].r[i] = first | second << 16;
        }
}

void emu_ldmatrix_x4(uint32_t r[4], const void *row, bool transposed, int line)
{
    int w = B.current / 32, lane = B.current % 32;
    bool last;

    emu_check_aligned(row, 16, "a row of ldmatrix");
    if (!emu_in_shared(row, 16))
        emu_die("ldmatrix of %p, which is not shared memory", row);
    together(0xffffffff, WAITS_LDMATRIX, line,
             [=](warp_state &, unsigned) { loads[w][lane] = { r, (const uint16_t *)row }; }, &last);
    if (last) {
        load_matrices(loads[w], transposed);
        apart(w);
    }
}

/* ---- cp.async: nothing is there before the wait ---- */

struct copying { void *to; const void *from; bool there; int group; };
struct copies { std::vector<copying> under_way; int groups; };
static copies copies_of[MOST_THREADS];

void emu_cp_async_16(void *shared, const void *from, bool there)
{
    copies &c = copies_of[B.current];

    emu_check_aligned(shared, 16, "the target of cp.async");
    emu_check_aligned(from, 16, "the source of cp.async");
    if (!emu_in_shared(shared, 16))
        emu_die("cp.async to %p, which is not shared memory", shared);
    if (there && !emu_is_device(from, 16))
        emu_die("cp.async from %p, which is not device memory", from);
    memset(shared, 0xff, 16);
    c.under_way.push_back({ shared, from, there, c.groups });
}

void emu_cp_async_commit()
{
    copies_of[B.current].groups++;
}

void emu_cp_async_wait(int but)
{
    copies &c = copies_of[B.current];
    size_t kept = 0;

    for (const copying &x : c.under_way) {
        if (x.group >= c.groups - but)
            c.under_way[kept++] = x;
        else if (x.there)
            memcpy(x.to, x.from, 16);
        else
            memset(x.to, 0, 16);
    }
    c.under_way.resize(kept);
}

void emu_forget_copies(int thread)
{
    copies &c = copies_of[thread];

    c.groups = 0;
    if (!c.under_way.empty())
        c.under_way.clear();
}

void emu_misaligned(const void *p, int to, const char *what)
{
    emu_die("%s at %p, which is not a multiple of %d", what, p, to);
}
