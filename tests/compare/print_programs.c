/* print_programs.c -- the programs of random plans, kernel by kernel, for compare.sh.
 *
 *     print_programs COUNT
 *
 * A line "@ PLAN" for each plan, then a section for each pass of a piece that has kernels, and a line for each kernel, collective and
 * move: all that schedules, allocator and clock read of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/program/program.h"
#include "tests/model/random_plan.h"

static const char *const models[] = { "gpt2", "llama-3.2-1b", "qwen3-0.6b", "gemma-3-4b", "olmo-2-7b", "command-r7b", "falcon-7b",
                                      "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b" };
enum { NMODELS = sizeof models / sizeof *models, LAYERS = 4 };

static void print_kernel(const struct kernel *k)
{
    printf("  %s kind %d flops %.17g bytes %" PRId64 " gemm %" PRId64 " %" PRId64 " %" PRId64 " x %" PRId64 " sums %" PRId64, k->name,
           (int)k->kind, k->flops, k->bytes, k->m, k->n, k->k, k->batch, k->sums);
    printf(" module %d half %d attends %d scaled %d captured %d fn %d role %d adapter %d step %d collective %d places %d", k->module, k->half,
           k->attends, k->scaled, k->captured, k->fn, k->role, k->adapter, k->step, k->collective, k->nplaces);
    for (int m = 0; m < NMEM; m++)
        printf(" peak %" PRId64 " net %" PRId64, k->peak[m], k->net[m]);
    printf(" copied %" PRId64 " pinned %" PRId64 " ready %" PRId64, k->copied, k->pinned, k->ready_bytes);
    for (int i = 0; i < 4; i++)
        printf(" %d", k->ready[i]);
    putchar('\n');
}

static void print_parts(const struct piece *q, int pass, const struct kernel *k)
{
    for (int i = k->place0; q->places[pass] && i < k->place0 + k->nplaces; i++) {
        const struct place *x = &q->places[pass][i];
        printf("    place slot %d mem %d comes %d bytes %" PRId64 "\n", x->slot, x->mem, x->comes, x->bytes);
    }
    for (int i = k->move0; q->moves[pass] && i < k->move0 + k->nmoves; i++) {
        const struct move *x = &q->moves[pass][i];
        printf("    move %d mem %d pass %d left %d handed %d tensor %d bytes %" PRId64 "\n", x->kind, x->mem, x->pass, x->left, x->handed_on,
               x->tensor, x->bytes);
    }
}

static void print_piece(const struct piece *q, int piece)
{
    for (int pass = 0; pass < NPASS; pass++) {
        if (q->nkernels[pass] == 0)
            continue;
        printf("piece %d pass %d saved %" PRId64 " outlives %" PRId64 " held %" PRId64 " split %d {\n", piece, pass, q->saved, q->outlives,
               q->held, q->split);
        for (int k = 0; k < q->nkernels[pass]; k++) {
            print_kernel(&q->kernels[pass][k]);
            print_parts(q, pass, &q->kernels[pass][k]);
        }
        for (int i = 0; i < q->ncollectives[pass]; i++) {
            const struct collective *c = &q->collectives[pass][i];
            printf("  collective %d needed %d op %d group %d dtype %d red %d stream %d onward %d engine %d graph %d %d to %d waits %d elems %" PRId64
                   " came %" PRId64 " own %" PRId64 "\n", c->kernel, c->needed, c->op, c->group, c->dtype, c->red, c->stream, c->onward, c->engine,
                   c->graph, c->from, c->into, c->waits, c->elems, c->came, c->own);
        }
        printf("}\n");
    }
}

/* A plan of some cell of a model of which something trains; false: none was found, as where experts are frozen. */
static bool draw_program_plan(const struct model *whole, const struct cluster *c, uint64_t *rng, struct model *trains, struct plan *p)
{
    draw_model(whole, rng, trains);
    for (int tries = 0; tries < 20; tries++)
        if (draw_plan_of(trains, c, rng, (enum strategy)draw(rng, NSTRATEGY), (enum dialect)draw(rng, NDIALECT), p))
            return true;
    model_free(trains);
    return false;
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? strtoll(argv[1], NULL, 10) : 370;
    struct model m[NMODELS], whole;
    struct program g = { 0 };
    struct cluster c;
    uint64_t rng = 777;
    char why[512];

    if (cluster_load("8xh100", &c) < 0)
        return 1;
    for (int i = 0; i < NMODELS; i++) {
        if (model_load(models[i], &whole) < 0 || model_with_layers(&whole, LAYERS, &m[i]) < 0)
            return 1;
        model_free(&whole);
    }
    for (int64_t i = 0; i < count; i++) {
        struct model trains;
        struct plan p;
        while (!draw_program_plan(&m[draw(&rng, NMODELS)], &c, &rng, &trains, &p))
            ;
        fail_capture(why, sizeof why);
        int rc = program_build(&p, &g);
        fail_capture(NULL, 0);
        printf("@ program %" PRId64 ": %s, %s/%s, %s\n", i, p.model.name, strategy_name(p.strategy), dialect_name(p.dialect),
               kernels_name(p.kernels));
        if (rc < 0)
            printf("refused: %s\n", why);
        for (int piece = 0; rc == 0 && piece < NPIECE; piece++)
            print_piece(&g.piece[piece], piece);
        if (rc == 0)
            printf("boundary %" PRId64 " flash %d cuda %d collectives %d\n", g.boundary, (int)g.flash, g.cuda_12_8, g.ncollectives);
        model_free(&trains);
    }
    program_free(&g);
    for (int i = 0; i < NMODELS; i++)
        model_free(&m[i]);
    return 0;
}
