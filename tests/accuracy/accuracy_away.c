/* accuracy_away.c -- the plans of `make accuracy` with states, parameters or activations in host memory and in files, which no
 * fit has seen.
 *
 *     accuracy_away DIR N              N plans for 2 ranks of this machine, as DIR/NNN.json
 *
 * A group is a model; its plans do the same work, and a planner has to choose among them.  It takes them from every combination
 * of strategy, dialect, micro-batch, recompute and what is offloaded that plan_check() and dpxrun accept: of each kind of offload
 * one in turn, by a fixed generator.  On stdout one line a plan: name, group, what it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "model/plan/elsewhere.h"
#include "model/plan/knob.h"
#include "tests/accuracy/accuracy_list.h"
#include "tests/accuracy/accuracy_models.h"

enum { BATCH = 8, GROUPS = sizeof models / sizeof *models, IDLE = 20, FIRST = 201 };     /* names beside those of the other lists */

/* What is offloaded: states and parameters (elsewhere.h), what blocks keep, or the inputs of recomputed blocks. */
static const struct kind { enum elsewhere states; enum activation_offload kept; bool inputs; } kinds[] = {
    { .states = ELSEWHERE_OPTIMIZER }, { .states = ELSEWHERE_ALL }, { .states = ELSEWHERE_DISK }, { .kept = OFFLOAD_STREAMS },
    { .inputs = true }, { .kept = OFFLOAD_SAVE_ON_CPU }, { .kept = OFFLOAD_SAVE_ON_CPU_PINNED },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct choice {
    struct accuracy_draw of[KINDS];
    uint64_t             state;
};

/* DeepSpeed's files: partitions of these models are far smaller than the buffers that it has by default; and, in several
 * sub-groups, reads and writes beside AdamW. */
enum { BUFFER = 4 << 20, SUB_GROUP = 2 << 20, PIPELINED_BUFFERS = 8 };

static void offer_files(struct choice *c, int kind, struct plan *p)
{
    struct ds_offload_optimizer *o = &p->ds.offload_optimizer;

    if (p->dialect == DIALECT_DEEPSPEED && p->ds.offload_param.device == OFFLOAD_NVME)
        p->ds.offload_param.buffer_size = BUFFER;
    accuracy_offer(&c->of[kind], p, &c->state);
    if (p->dialect != DIALECT_DEEPSPEED || o->device != OFFLOAD_NVME)
        return;
    p->ds.sub_group_size = SUB_GROUP;
    o->pipeline_read = o->pipeline_write = true;
    o->buffer_count = PIPELINED_BUFFERS;
    accuracy_offer(&c->of[kind], p, &c->state);
}

/* FSDP1's CPUOffload accumulates within no_sync() only. */
static void offer(struct choice *c, int kind, struct plan p)
{
    if (p.dialect == DIALECT_TORCH_FSDP1 && p.fsdp.cpu_offload)
        p.sync_every_micro_step = p.accumulation == 1;
    p.activation_offload = kinds[kind].kept;
    offer_files(c, kind, &p);
}

static void offer_cell(struct choice *c, const struct plan *base, enum strategy s, enum dialect d)
{
    int64_t world = base->cluster.world_size;

    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t b = 1; b * world <= BATCH; b *= 2)
            for (int r = RECOMPUTE_NONE; r < NRECOMPUTE; r++) {
                struct plan p = *base;
                if (kinds[kind].inputs != (r == RECOMPUTE_OFFLOAD) || !elsewhere_has(s, d, kinds[kind].states))
                    continue;
                p.micro_batch = b;
                plan_defaults(&p, s, d, DT_FP32);
                p.kernels = KERNELS_DPX;
                p.recompute = (enum recompute)r;
                p.accumulation = BATCH / (b * world);
                elsewhere_set(&p, kinds[kind].states);
                offer(c, kind, p);
            }
}

static void offer_all(struct choice *c, const struct plan *base)
{
    for (int s = 0; s < NSTRATEGY; s++)
        for (int d = 0; d < NDIALECT; d++)
            if (dialect_has((enum dialect)d, (enum strategy)s))
                offer_cell(c, base, (enum strategy)s, (enum dialect)d);
}

static void say(const struct kind *k, const struct plan *p, char *to, size_t size)
{
    const char *what = k->states != ELSEWHERE_NOTHING ? elsewhere_words[k->states]
                     : k->inputs                      ? "inputs"
                                                      : knob_words("activation_offload")[k->kept];

    snprintf(to, size, "%s%s: %s %s b%" PRId64 "x%" PRId64 " %s", what, p->ds.offload_optimizer.pipeline_read ? "+p" : "",
             strategy_name(p->strategy), dialect_name(p->dialect), p->micro_batch, p->accumulation, recompute_name(p->recompute));
}

static int write_group(struct accuracy_list *l, int g, const struct plan *base, int n)
{
    static struct choice made;
    char group[64], what[96];
    int done = 0, rc = 0;

    l->seen = json_array();
    snprintf(group, sizeof group, "%s-away", models[g].name);
    for (int turn = 0, idle = 0; done < n && idle < IDLE && rc >= 0; turn++) {         /* there may be fewer */
        int before = done;
        memset(&made, 0, sizeof made);
        made.state = (uint64_t)(1000 * g + turn + 1);
        offer_all(&made, base);
        for (int k = 0; k < KINDS && done < n && rc >= 0; k++) {
            if (made.of[k].met == 0)
                continue;
            say(&kinds[k], &made.of[k].plan, what, sizeof what);
            rc = accuracy_list_add(l, group, what, &made.of[k].plan);
            done += rc == 1;
        }
        idle = done > before ? 0 : idle + 1;
    }
    json_decref(l->seen);
    return rc;
}

int main(int argc, char **argv)
{
    int n = argc == 3 ? atoi(argv[2]) : 0;
    struct accuracy_list l = { .dir = argv[1], .cluster = "localhost:2", .number = FIRST };

    if (n < GROUPS)
        return fail("usage: accuracy_away DIR N, N at least %d", GROUPS), 2;
    for (int g = 0; g < GROUPS; g++) {
        json_t *j = json_loads(models[g].config, 0, NULL);
        struct plan base = { .seq = SEQ };
        if (!j || model_from_config(j, models[g].name, &base.model) < 0 || cluster_load(l.cluster, &base.cluster) < 0)
            return 1;
        json_decref(j);
        int rc = write_group(&l, g, &base, n / GROUPS + (g < n % GROUPS));
        model_free(&base.model);
        if (rc < 0)
            return 1;
    }
    return 0;
}
