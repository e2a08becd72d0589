/* mpi_seed.c -- the experiment that this project began with, in the small: one GPT on 8 ranks, its
 * states shared out more and more, each way with the same losses and with bytes and memory as
 * predicted.  Says what mpi_matrix says. */
#include "tests/mpi/matrix_check.h"

#include "model/plan/knob.h"

/* dpxplan's gpt-lite, 12 layers for 65 characters, at a quarter of its width. */
static const char config[] =
    "{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_embd\": 192, \"n_head\": 12, \"n_positions\": 256,"
    " \"vocab_size\": 65, \"tie_word_embeddings\": false, \"resid_pdrop\": 0, \"embd_pdrop\": 0,"
    " \"attn_pdrop\": 0}";

static const struct { const char *name; enum strategy s; enum dialect d; } ways[] = {
    { "DDP",    STRAT_DDP,   DIALECT_TORCH },
    { "ZeRO-1", STRAT_ZERO1, DIALECT_DEEPSPEED },
    { "ZeRO-2", STRAT_ZERO2, DIALECT_DEEPSPEED },
    { "ZeRO-3", STRAT_ZERO3, DIALECT_DEEPSPEED },
    { "FSDP",   STRAT_FSDP,  DIALECT_TORCH },
};
enum { NWAYS = sizeof ways / sizeof *ways };

static void plan_way(const struct model *m, enum strategy s, enum dialect d, int n, struct plan *p)
{
    memset(p, 0, sizeof *p);
    p->model = *m;
    p->cluster.world_size = p->cluster.gpus_per_node = n;
    p->cluster.nodes = 1;
    p->seq = 256;
    p->micro_batch = world / n;
    plan_defaults(p, s, d, DT_FP32);
    p->kernels = KERNELS_DPX;
    p->clip = 1;
    p->ddp.bucket_cap_mb = 1.6;                 /* 4e5 elements too */
    p->ds.reduce_bucket_size = 400000;
    p->ds.stage3_prefetch_bucket_size = 400000;
    p->ds.stage3_param_persistence_threshold = 1000;
    if (plan_check(p, "seed") < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    double loss[MOST_STEPS] = { 0 };
    struct model m;
    struct plan p;
    json_t *j = json_loads(config, 0, NULL);

    start_ranks(&argc, &argv);
    steps = 2;
    if (!j || model_from_config(j, "seed", &m) < 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    json_decref(j);
    plan_way(&m, STRAT_DDP, DIALECT_PAPER, 1, &p);
    if (rank == 0)
        run_alone(&p, loss);
    for (int i = argc > 1 ? atoi(argv[1]) : 0; i < NWAYS; i++) {
        plan_way(&m, ways[i].s, ways[i].d, world, &p);
        plan_begins(i, ways[i].name);
        run_plan(&p, loss);
        plan_ends();
    }
    model_free(&m);
    MPI_Finalize();
    return 0;
}
