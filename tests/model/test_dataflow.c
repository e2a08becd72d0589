/* Data reaches where it must, for plans of every cell and many of their options.
 *
 *     test_dataflow [PLANS [CELL]]     that many random plans of each cell; only cells so named,
 *                                      such as '*TORCH' */
#include "tests/model/dataflow_run.h"
#include "tests/model/plans.h"
#include "tests/model/random_plan.h"

/* Odd sizes, so that shards have padding and boundaries fall inside tensors. */
static const char *const configs[] = {
    "{'model_type': 'gpt2', 'n_layer': 5, 'n_embd': 8, 'n_head': 2, 'n_positions': 8, 'vocab_size': 11}",
    "{'model_type': 'llama', 'num_hidden_layers': 3, 'hidden_size': 12, 'intermediate_size': 20,"
    " 'num_attention_heads': 6, 'num_key_value_heads': 2, 'vocab_size': 13, 'max_position_embeddings': 16,"
    " 'rms_norm_eps': 1e-5, 'tie_word_embeddings': false}",
    "{'model_type': 'opt', 'num_hidden_layers': 2, 'hidden_size': 10, 'ffn_dim': 14,"
    " 'num_attention_heads': 2, 'vocab_size': 9, 'max_position_embeddings': 8, 'word_embed_proj_dim': 10,"
    " 'tie_word_embeddings': true}",
};
enum { NCONFIGS = sizeof configs / sizeof *configs };

static struct model model[NCONFIGS];
static int64_t checked;
static int random_plans = 60;          /* of a cell */

static int load_models(void **state)
{
    (void)state;
    for (int i = 0; i < NCONFIGS; i++) {
        char text[600];
        size_t n = strlen(configs[i]);
        for (size_t k = 0; k <= n; k++)
            text[k] = configs[i][k] == '\'' ? '"' : configs[i][k];
        json_t *j = json_loads(text, 0, NULL);
        if (!j || model_from_config(j, "test", &model[i]) < 0)
            return -1;
        json_decref(j);
    }
    return 0;
}

static int free_models(void **state)
{
    (void)state;
    for (int i = 0; i < NCONFIGS; i++)
        model_free(&model[i]);
    return 0;
}

/* The plan without its model and cluster, for a message. */
static void print_plan(const struct plan *p)
{
    json_t *j = plan_to_json(p);

    json_object_del(j, "cluster");
    json_object_del(j, "model");
    char *text = json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER);
    print_error("%s in a world of %d: %s\n", p->model.family, (int)p->cluster.world_size, text);
    free(text);
    json_decref(j);
}

/* PowerSGD's average is an approximation: which elements are whole is nothing that the schedule says.  What dpxrun has no kernels for says
 * nothing of its data either. */
static void flows(const struct plan *p)
{
    struct df d;

    if (p->ddp.comm_hook == HOOK_POWERSGD || comm_hook(p->ddp.comm_hook)->not_run)
        return;

    df_init(&d, p);
    if (!df_run(&d)) {
        print_plan(p);
        fail_msg("%s", d.why);
    }
    df_free(&d);
    checked++;
}

static void start(struct plan *p, const struct model *m, int64_t world, enum strategy s, enum dialect d,
                  enum dtype t)
{
    memset(p, 0, sizeof *p);
    p->model = *m;
    world_of(&p->cluster, world);
    p->seq = 4;
    p->micro_batch = 1;
    plan_defaults(p, s, d, t);
    p->kernels = KERNELS_DPX;
    p->clip = 0;
}

/* ---- the checker ---- */

static struct op *entry(struct schedules *s, const char *what, int kind)
{
    for (int i = s->begin[SCHED_FIRST]; i < s->end[SCHED_FIRST]; i++)
        if (s->ops[i].kind == kind && !strcmp(s->ops[i].what, what))
            return &s->ops[i];
    fail_msg("no entry \"%s\"", what);
    return NULL;
}

static struct slice *held(struct schedules *s, const char *what)
{
    for (int i = 0; i < s->nbufs; i++)
        if (!strcmp(s->bufs[i].what, what))
            return &s->slices[s->layouts[s->bufs[i].layout].slice0];
    fail_msg("no buffer \"%s\"", what);
    return NULL;
}

static struct act *act_at(struct schedules *s, struct op *o, int i) { return &s->acts[(int)o->act0 + i]; }

static void copies_nothing(struct schedules *s, int64_t rank)
{
    (void)rank;
    entry(s, "copy-out", OP_COPY)->u.copy.fn = COPY_NOTHING;
}

static void scales_twice(struct schedules *s, int64_t rank)
{
    (void)rank;
    entry(s, "copy-in grads", OP_COPY)->u.copy.scale = 2;
}

static void sums(struct schedules *s, int64_t rank)
{
    (void)rank;
    entry(s, "reduce_scatter", OP_COLL)->u.coll.red = RED_SUM;
}

static void forgets_a_norm(struct schedules *s, int64_t rank)
{
    if (rank == 1)
        act_at(s, entry(s, "gradient norm", OP_COPY), 0)->what = ACT_USE;
}

static void moves_a_slice(struct schedules *s, int64_t rank)
{
    (void)rank;
    held(s, "reduce-scatter input")[1].at += 4;
}

static void takes_another_element(struct schedules *s, int64_t rank)
{
    (void)rank;
    held(s, "reduce-scatter input")[1].from++;
}

static void frees_early(struct schedules *s, int64_t rank)
{
    struct op *o = entry(s, "copy-out", OP_COPY);

    (void)rank;
    act_at(s, o, 1)->what |= ACT_FREE;
}

static void gathers_less(struct schedules *s, int64_t rank)
{
    if (rank == 1)
        entry(s, "all_gather", OP_COLL)->u.coll.elems -= 2;
}

static void stays_away(struct schedules *s, int64_t rank)
{
    if (rank == 1)
        s->end[SCHED_FIRST] = (int)(entry(s, "all_reduce", OP_COLL) - s->ops);
}

static void loses_states(struct schedules *s, int64_t rank)
{
    struct op *o = entry(s, "AdamW", OP_OPTIMIZER);

    (void)rank;
    for (uint32_t i = 0; i < o->nacts; i++)
        if (s->bufs[s->acts[o->act0 + i].buf].category == CAT_OPTIMIZER)
            s->acts[o->act0 + i].what &= (uint8_t)~ACT_READ;
}

static void weighs_twice(struct schedules *s, int64_t rank)
{
    (void)rank;
    s->seed *= 2;
}

static void what_is_wrong_is_seen(void **state)
{
    static const struct { void (*spoil)(struct schedules *, int64_t); const char *says; } wrong[] = {
        { copies_nothing, "parameter " }, { scales_twice, "the squared norm is" },
        { sums, "the squared norm is" }, { forgets_a_norm, "the squared norm is" },
        { moves_a_slice, "overlap" }, { takes_another_element, "the optimizer's gradient" },
        { frees_early, "is dead" }, { gathers_less, "meanwhile" },
        { stays_away, "never come" }, { loses_states, "exp_avg of" },
        { weighs_twice, "the squared norm is" },
    };
    struct plan p;

    (void)state;
    start(&p, &model[1], 2, STRAT_FSDP, DIALECT_TORCH, DT_FP32);
    p.clip = 20;
    flows(&p);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct df d;
        df_init(&d, &p);
        d.spoil = wrong[i].spoil;
        if (df_run(&d))
            fail_msg("nothing seen; it lacks \"%s\"", wrong[i].says);
        if (!strstr(d.why, wrong[i].says))
            fail_msg("says \"%s\", which lacks \"%s\"", d.why, wrong[i].says);
        df_free(&d);
    }
}

/* ---- the grid: what every cell shares ---- */

static bool allowed(const struct plan *p)
{
    char why[512];

    fail_capture(why, sizeof why);
    bool yes = plan_check(p, "test") == 0 && lower_check(p) == 0;
    fail_capture(NULL, 0);
    return yes;
}

static const int64_t sizes[] = { 1, 2, 3, 4, 6, 8 };
enum { NSIZES = sizeof sizes / sizeof *sizes };

static void grid_of_units(struct plan *p)
{
    static const enum unit_kind units[] = {
        UNIT_MODEL, UNIT_BLOCK, UNIT_BLOCKS, UNIT_HALF_BLOCK, UNIT_MODULE
    };
    enum unit_kind own = p->unit;

    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        p->unit = units[u];
        p->unit_blocks = units[u] == UNIT_BLOCKS ? 2 : 1;
        if (units[u] != own && !knob_find("", "unit", CELL(p->strategy, p->dialect)))
            continue;
        if (allowed(p))
            flows(p);
    }
}

static void grid_of_steps(struct plan *p)
{
    for (int64_t a = 1; a <= 4; a *= 2)
        for (int sync = 0; sync < 2; sync++) {
            struct plan q = *p;
            q.accumulation = a;
            q.sync_every_micro_step = sync;
            if (allowed(&q))
                grid_of_units(&q);
        }
}

static void grid(enum strategy s, enum dialect d)
{
    static const enum recompute again[] = { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
    struct plan p;

    for (int w = 0; w < NSIZES; w++)
        for (int t = DT_FP32; t <= DT_BF16; t++) {
            start(&p, &model[(w + t) % NCONFIGS], sizes[w], s, d, (enum dtype)t);
            p.clip = w % 2 ? 20 : 0;
            p.recompute = again[w / 2 % 3];
            if (allowed(&p))
                grid_of_steps(&p);
        }
}

/* FSDP1's hybrid sharding with shard groups of one rank never averages anything between the
 * replicas (lower_fsdp1.c notes it): they drift apart, as they do in PyTorch. */
static bool diverges(const struct plan *p)
{
    bool hybrid = p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD ||
                  p->fsdp.sharding_strategy == FSDP1_HYBRID_SHARD_ZERO2;

    return p->dialect == DIALECT_TORCH_FSDP1 && hybrid && p->shard_group == 1 && p->cluster.world_size > 1;
}

/* ---- plans drawn at random: what each dialect has of its own ---- */

static void draw_cell(enum strategy s, enum dialect d, int plans)
{
    uint64_t rng = 0x9E37 + (uint64_t)s * 8 + d;
    const struct knob *k;
    struct plan p;

    while (plans > 0) {
        enum dtype t = draw(&rng, 2) ? DT_FP32 : DT_BF16;
        start(&p, &model[draw(&rng, NCONFIGS)], sizes[draw(&rng, NSIZES)], s, d, t);
        for (int i = 0; (k = knob_at(i)); i++)
            if (k->cells & CELL(s, d))
                draw_key(&p, k, &rng);
        draw_limits(&p, &rng);
        p.kernels = KERNELS_DPX;
        p.precision = t;
        p.seq = 1 + draw(&rng, 8);
        p.accumulation = 1 + draw(&rng, 4);
        p.clip = draw(&rng, 2) ? 10 : 0;
        if (plan_group_is_choice(s, d) && draw(&rng, 2))
            p.shard_group = p.cluster.world_size / (1 + draw(&rng, 4));
        p.deterministic = d == DIALECT_PAPER && s != STRAT_DP && p.shard_group == p.cluster.world_size &&
                          draw(&rng, 2);
        if (p.ds.reduce_bucket_size > 1 << 20)
            p.ds.reduce_bucket_size = 1 << 20;          /* whole models, and memory to spare */
        if (p.ddp.model_dtype >= 0)
            p.ddp.model_dtype = (int)t;
        plan_resolve(&p);
        if (p.reduce_dtype > DT_BF16 || p.micro_batch < 1 || !allowed(&p) || diverges(&p))
            continue;
        if (!plan_is_data_parallel(&p))     /* every rank has all tensors here */
            continue;
        flows(&p);
        plans--;
    }
}

/* ---- cells ---- */

struct cell { enum strategy s; enum dialect d; };

static void data_flows(void **state)
{
    const struct cell *c = *state;

    checked = 0;
    grid(c->s, c->d);
    draw_cell(c->s, c->d, random_plans);
    print_message("%d plans\n", (int)checked);
}

#define A_CELL(strategy, dialect) \
    { .name = "data_flows_in_" #strategy "_of_" #dialect, .test_func = data_flows, \
      .initial_state = &(struct cell){ STRAT_##strategy, DIALECT_##dialect } }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_seen),
        A_CELL(DP, PAPER), A_CELL(DDP, PAPER), A_CELL(ZERO1, PAPER), A_CELL(ZERO2, PAPER),
        A_CELL(ZERO3, PAPER), A_CELL(FSDP, PAPER), A_CELL(DP, TORCH), A_CELL(DDP, TORCH),
        A_CELL(ZERO1, TORCH), A_CELL(FSDP, TORCH),
        A_CELL(FSDP, TORCH_FSDP1), A_CELL(DDP, DEEPSPEED), A_CELL(ZERO1, DEEPSPEED),
        A_CELL(ZERO2, DEEPSPEED), A_CELL(ZERO3, DEEPSPEED),
    };
    if (argc > 1)
        random_plans = atoi(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, load_models, free_models);
}
