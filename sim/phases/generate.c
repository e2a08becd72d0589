/* generate.c -- see generate.h. */
#include "sim/phases/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "sim/phases/engine_step.h"
#include "sim/price/gpu_rates.h"

/* Of the engine's time that the GPU works, at least (generate.h). */
#define BUSY_LEAST (1 - 0.33 - 0.29)

/* ---- sequences ---- */

/* A sequence that runs: the step at which it ends, its own tokens then, and its place in the order in which they were taken on. */
struct running { double end, length; int64_t order; };

/* One that was set back for want of room: its own tokens, and what all had put into the KV cache by then. */
struct waiting { double length, own, written; };

/* The earliest end comes first. */
static void heap_put(struct running *heap, int64_t n, struct running x)
{
    int64_t i = n;

    for (; i > 0 && heap[(i - 1) / 2].end > x.end; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = x;
}

static struct running heap_take(struct running *heap, int64_t n)
{
    struct running first = heap[0], last = heap[n - 1];
    int64_t i = 0;

    for (int64_t next; (next = 2 * i + 1) < n - 1; i = next) {
        next += next + 1 < n - 1 && heap[next + 1].end < heap[next].end;
        if (heap[next].end >= last.end)
            break;
        heap[i] = heap[next];
    }
    heap[i] = last;
    return first;
}

/* Bits of i the other way round, as a fraction: lengths come in no order, each stretch with all of them. */
static double spread_out(uint32_t i)
{
    double x = 0, unit = 0.5;

    for (; i; i >>= 1, unit /= 2)
        x += unit * (double)(i & 1);
    return x;
}

/* Of so many spread_out() is largest of this one. */
static int64_t largest_of(int64_t n)
{
    int64_t ones = 1;

    while (2 * ones + 1 <= n)
        ones = 2 * ones + 1;
    return (n == 1 ? 0 : ones < n ? ones : ones / 2);
}

static double length_of(int64_t i, int64_t sequences, int64_t all, const struct lengths *l)
{
    double u = i == largest_of(sequences) ? 1 - 0.5 / (double)all : fmin(1, spread_out((uint32_t)i) + 0.5 / (double)sequences);

    return fmax(1, lengths_quantile(l, u));
}

/* ---- all sequences of one engine ---- */

struct decoding {
    struct engine_steps *d;
    struct generation *out;
    double prompt, room;                /* tokens: of a prompt; of the KV cache */
    double at, context, written;        /* steps; tokens in the cache; tokens ever put there */
    struct running *heap;
    struct waiting *set_back;
    int64_t n, waits, orders, begun;
};

static void take_on(struct decoding *s, double length, double own)
{
    heap_put(s->heap, s->n++, (struct running){ s->at + length - own, length, s->orders++ });
    s->context += s->prompt + own;
    s->written += s->prompt + own;
}

/* What was set back comes first, and nothing passes it (vLLM 0.11.2, v1/core/sched/scheduler.py: preempted requests go to the front of the queue;
 * the first that finds no room ends the round).  Its blocks stay in the cache until others need them: what was written since is read again. */
static void admit(struct decoding *s, int64_t sequences, int64_t all, const struct lengths *l)
{
    while (s->n < s->out->slots && (s->waits > 0 || s->begun < sequences)) {
        struct waiting *first = s->waits > 0 ? &s->set_back[s->waits - 1] : NULL;
        double own = first ? first->own : 0;
        if (s->n > 0 && s->context + s->prompt + own + 1 > s->room)
            return;
        if (first) {
            double again = fmin(s->prompt + own, s->written - first->written);
            s->out->again_s += engine_prompt_s(s->d, again);
            s->waits--;
            take_on(s, first->length, own);
        } else
            take_on(s, length_of(s->begun++, sequences, all, l), 0);
    }
}

/* The one that was taken on last goes. */
static void set_back(struct decoding *s)
{
    int64_t last = 0;

    for (int64_t i = 1; i < s->n; i++)
        last = s->heap[i].order > s->heap[last].order ? i : last;
    struct running r = s->heap[last];
    for (; last > 0; last = (last - 1) / 2)         /* to the top, then off it */
        s->heap[last] = s->heap[(last - 1) / 2];
    s->heap[0] = r;
    heap_take(s->heap, s->n--);
    double own = r.length - (r.end - s->at);
    s->context -= s->prompt + own;
    s->set_back[s->waits++] = (struct waiting){ r.length, own, s->written };
    s->out->preempted++;
}

/* Until one ends or the cache is full the batch is the same, and its context grows by one token a sequence and step. */
static void advance(struct decoding *s, bool more)
{
    double b = (double)s->n, steps = s->heap[0].end - s->at, full = (s->room - s->context) / b;
    bool ends = steps <= full || s->n == 1;

    steps = ends ? steps : fmax(0, full);
    double context = s->context + b * steps / 2, took = steps * engine_step_s(s->d, s->n, context);
    s->out->decode_s += took;
    s->out->gpu_s += steps * (engine_step_gpu(s->d, s->n) + engine_context_s(s->d, s->n, context));
    s->out->tail_s += more ? 0 : took;
    s->context += b * steps;
    s->written += b * steps;
    s->at = ends ? s->heap[0].end : s->at + steps;
    if (!ends)
        set_back(s);
    while (ends && s->n > 0 && s->heap[0].end <= s->at)
        s->context -= s->prompt + heap_take(s->heap, s->n--).length;
}

static void decode(struct engine_steps *d, int64_t sequences, int64_t all, double prompt, double room, const struct lengths *l, struct generation *out)
{
    struct decoding s = { .d = d, .out = out, .prompt = prompt, .room = room, .heap = room_new((size_t)out->slots, sizeof *s.heap),
                          .set_back = room_new((size_t)out->slots, sizeof *s.set_back) };

    while (s.begun < sequences || s.n > 0 || s.waits > 0) {
        admit(&s, sequences, all, l);
        advance(&s, s.begun < sequences || s.waits > 0);
    }
    out->steps = s.at;
    free(s.heap);
    free(s.set_back);
}

/* vLLM takes sequences on as long as their prompts find room, and sets the last one back when the cache is full; SGLang leaves room for what
 * they are expected to write: with as many as it holds on average none is set back. */
static double room_of(const struct engine *e, const struct engine_memory *mem, int64_t sequences, double prompt, const struct lengths *l, struct generation *out)
{
    int64_t room = (int64_t)((double)mem->kv_tokens / (prompt + lengths_age(l)));
    int64_t most = e->kind == ENGINE_VLLM || e->sequences < room ? e->sequences : room;

    out->slots = most < sequences ? most : sequences;
    return e->kind == ENGINE_VLLM ? (double)mem->kv_tokens : INFINITY;
}

/* The GPU's own time, and what its spread and the host make of it at most. */
static struct cost interval_of(const struct generation *g, double unsure, const struct gpu_rates *rates)
{
    double s = g->prefill_s + g->again_s + g->decode_s, gpu = g->prefill_s + g->again_s + g->gpu_s, spread = fmax(rates->gemm_spread, rates->hbm_spread);

    return (struct cost){ .s = s, .low_s = gpu / spread, .high_s = unsure * fmax(s * spread, gpu / BUSY_LEAST), .basis = rates->basis };
}

int generate(const struct engine *e, const struct engine_memory *mem, const struct model *m, const struct cluster *c, int64_t sequences,
             int64_t all, int64_t of_prompt, double prompt, const struct lengths *l, struct generation *out)
{
    memset(out, 0, sizeof *out);
    if (lengths_check(l) < 0)
        return -1;
    if (sequences < 1 || sequences > GENERATE_MOST)
        return fail("generate: %lld responses of one engine: at least 1, at most %d", (long long)sequences, GENERATE_MOST);
    if ((double)mem->kv_tokens < prompt + l->longest)
        return fail("generate: the KV cache holds %lld tokens, and the longest sequence has %.0f", (long long)mem->kv_tokens, prompt + l->longest);
    double room = room_of(e, mem, sequences, prompt, l, out);
    struct engine_steps *d = engine_steps_new(e, mem, m, c, out->slots);
    int rc = engine_steps_check(d);
    if (rc == 0) {
        double prompts = ceil((double)sequences / (double)(of_prompt > 0 ? of_prompt : 1));
        out->prefill_s = engine_prompt_s(d, prompt * prompts) + prompts * engine_attention_s(d, prompt);
        decode(d, sequences, all, prompt, room, l, out);
        out->time = interval_of(out, engine_step_unsure(d, out->slots), gpu_rates(&c->gpu));
        out->tokens_per_s = (double)sequences * l->mean / out->time.s;
    }
    engine_steps_free(d);
    return rc;
}
