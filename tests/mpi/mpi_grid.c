/* mpi_grid.c -- plans over meshes (grid_plans.h), held against PyTorch and against one rank.
 *
 *     mpi_grid list few|some|whole|every           the plans, a line each: ranks and values of the axes; on stderr how many were
 *                                                  refused, and why
 *     mpirun -n N mpi_grid run LIST FOLDER [FROM]  those of the list for N ranks, from number FROM
 *     mpirun -n N mpi_grid resume LIST [FROM]      the same plans go on from a state bit for bit (resume_check.h)
 *
 * Each plan trains three steps from PyTorch's weights on PyTorch's tokens.  Losses, gradients and last weights are
 * PyTorch's (tests/golden/parity/grid), in bf16 as near as PyTorch itself comes in bf16; in fp32 they are those of one rank as well, and with dropout
 * those of one rank alone, which rank 0 runs once and keeps in FOLDER.  Bytes, calls and memory as matrix_check.h says.  Speaks as mpi_matrix does. */
#include "tests/mpi/grid_covering.h"
#include "tests/mpi/matrix_check.h"
#include "tests/mpi/resume_check.h"
#include "tests/mpi/tensor_distance.h"

#include <limits.h>

enum { STEPS = MOST_STEPS };

static const char *folder;

/* ---- the list ---- */

static void print_choice(const struct grid_choice *c, const struct plan *p)
{
    printf("%d", (int)p->cluster.world_size);
    for (int a = 0; a < GRID_AXES; a++)
        printf(" %d", c->at[a]);
    printf("\n");
}

static int list(const char *extent)
{
    bool few = !strcmp(extent, "few"), some = few || !strcmp(extent, "some");
    int64_t none = few ? grid_cover_few(print_choice) : some ? grid_cover(print_choice) : grid_whole(!strcmp(extent, "whole") ? GRID_PLAINEST : -1, print_choice);

    fprintf(stderr, "%lld %s\n", (long long)none, !some ? "plans refused" : "pairs of values without a plan");
    for (int i = 0; i < grid_nreasons; i++)
        fprintf(stderr, "%7lld  %s\n", (long long)grid_reasons[i].times, grid_reasons[i].text);
    return 0;
}

static bool read_choice(FILE *f, int *ranks, struct grid_choice *c)
{
    bool good = fscanf(f, "%d", ranks) == 1;

    for (int a = 0; good && a < GRID_AXES; a++)
        good = fscanf(f, "%d", &c->at[a]) == 1 && c->at[a] >= 0 && c->at[a] < grid_size[a];
    return good;
}

/* ---- what is right ---- */

struct allowed { double loss; struct tolerance grads, weights; };      /* relative */

struct truth {
    double loss[STEPS], clip_factor;            /* factor: of the gradients in `grads`, to have them after clipping */
    char   grads[PATH_MAX], final[PATH_MAX];
    struct allowed allowed;
    json_t *doc;                                /* that `allowed` is from, or NULL */
};

static void name_files(struct truth *t, const char *at, const char *grads, const char *final)
{
    snprintf(t->grads, sizeof t->grads, "%s%s.safetensors", at, grads);
    snprintf(t->final, sizeof t->final, "%s%s.safetensors", at, final);
}

static double number_at(const json_t *doc, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(doc, key), i));
}

/* By what bf16 costs PyTorch (make_grid.py), the most of four ways to round: twice that of a loss, three times that of a gradient.
 * A gradient's is a norm of as many rounding errors of one size, 12 of them in the smallest tensors: of two such norms one is
 * more than 2.6 times the other in one of a thousand cases (F distribution), and ranks that round their parts of a sum before
 * they are added round once more.  Never more than 0.3: a factor shows.  Adam's first steps are signs: where a gradient is
 * smaller than its error an element goes the other way, so that of weights only this is asked, that they went
 * PyTorch's way (untrained they are 1 from it, trained by other gradients sqrt 2). */
static struct allowed allowed_in_bf16(const json_t *doc, bool clipped)
{
    const json_t *costs = json_object_get(doc, "bf16_from_fp64"), *moved = json_object_get(doc, "weights_moved");

    return (struct allowed){ 2 * json_number_value(json_object_get(costs, "loss")), { 0.3, 3, json_object_get(costs, "grads") },
                             { 1, 0.9, json_object_get(moved, clipped ? "final-clipped" : "final") } };
}

static const struct allowed allowed_in_fp32 = { .loss = 1e-6, .grads = { .most = 1e-5 }, .weights = { .most = 1e-4 } };

static void truth_of_torch(const struct grid_choice *c, struct truth *t)
{
    double clip = grid_numbers[c->at[GRID_NUMBERS]].clip;
    char at[256], path[512];

    snprintf(at, sizeof at, GRID_GOLDEN "/%s/", grid_models[c->at[GRID_MODEL]]);
    name_files(t, at, "grads", clip > 0 ? "final-clipped" : "final");
    snprintf(path, sizeof path, "%sexpected.json", at);
    t->doc = json_load_file(path, 0, NULL);
    if (!t->doc)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < STEPS; i++)
        t->loss[i] = number_at(t->doc, clip > 0 ? "loss_clipped" : "loss", i);
    t->clip_factor = clip > 0 ? clip / (number_at(t->doc, "grad_norm", 0) + 1e-6) : 1;    /* clip_grad_norm_'s */
    t->allowed = grid_numbers[c->at[GRID_NUMBERS]].t == DT_BF16 ? allowed_in_bf16(t->doc, clip > 0) : allowed_in_fp32;
}

static struct train_args args_on(const struct grid_choice *c, const struct plan *p, bool alone, const char *grads, char init[PATH_MAX])
{
    struct train_args a = args_of(p, alone);

    snprintf(init, PATH_MAX, GRID_GOLDEN "/%s/init.safetensors", grid_models[c->at[GRID_MODEL]]);
    a.init = init;
    a.data = GRID_GOLDEN "/tokens.bin";
    a.sequential = true;
    a.save_grads = grads;
    a.grads_step = 1;
    return a;
}

/* 0, or -1 with a complaint. */
static int run_steps(struct train *t, double loss[STEPS], const char *final)
{
    struct train_report r;

    for (int i = 0; i < STEPS; i++) {
        if (train_step(t, false, &r) < 0) {
            complain("step %d fails: %s\n", i + 1, train_why(t));
            return -1;
        }
        loss[i] = r.loss;
    }
    if (train_save(t, final) < 0) {
        complain("its weights cannot be saved\n");
        return -1;
    }
    return 0;
}

/* Plain DDP of the paper on one rank, computed once. */
static void truth_of_one_rank(const struct grid_choice *c, struct truth *t)
{
    struct grid_choice one = { .at = { [GRID_MODEL] = c->at[GRID_MODEL], [GRID_NUMBERS] = c->at[GRID_NUMBERS] } };
    char at[PATH_MAX / 2], path[PATH_MAX], init[PATH_MAX], why[512];
    struct plan p;

    snprintf(at, sizeof at, "%s/%s-%d-", folder, grid_models[c->at[GRID_MODEL]], c->at[GRID_NUMBERS]);
    name_files(t, at, "grads", "final");
    snprintf(path, sizeof path, "%sloss", at);
    t->clip_factor = 1;
    t->allowed = allowed_in_fp32;
    t->doc = NULL;
    FILE *f = fopen(path, "r");
    if (!f) {
        if (!grid_plan(&one, &p, why, sizeof why))
            MPI_Abort(MPI_COMM_WORLD, 1);
        struct train_args a = args_on(c, &p, true, t->grads, init);
        struct train *alone = train_open(&a, &(struct train_refusal){ 0 });
        if (!alone || run_steps(alone, t->loss, t->final) < 0 || !(f = fopen(path, "w+")))
            MPI_Abort(MPI_COMM_WORLD, 1);
        train_close(alone);
        for (int i = 0; i < STEPS; i++)
            fprintf(f, "%.17g\n", t->loss[i]);
        rewind(f);
    }
    for (int i = 0; i < STEPS; i++)
        if (fscanf(f, "%lf", &t->loss[i]) != 1)
            MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(f);
}

/* ---- one plan held against it ---- */

static void compare(const char *with, struct truth *t, const double loss[STEPS], const char *grads, const char *final)
{
    const struct allowed *a = &t->allowed;
    size_t before = strlen(wrong);

    for (int i = 0; i < STEPS; i++)
        if (!(fabs(loss[i] - t->loss[i]) <= a->loss * t->loss[i]))
            complain("loss of step %d is %.9g, not %.9g\n", i + 1, loss[i], t->loss[i]);
    if (tensors_differ(t->grads, grads, &a->grads, t->clip_factor, complain))
        complain("so are gradients\n");
    if (tensors_differ(t->final, final, &a->weights, 1, complain))
        complain("so are weights\n");
    if (strlen(wrong) > before)
        complain("beside %s\n", with);
    json_decref(t->doc);
}

static void check_results(const struct grid_choice *c, const struct plan *p, const double loss[STEPS], const char *grads,
                          const char *final)
{
    struct truth t;

    if (p->precision == DT_FP32) {
        truth_of_one_rank(c, &t);
        compare("one rank", &t, loss, grads, final);
    }
    if (p->dropout <= 0) {
        truth_of_torch(c, &t);
        compare("PyTorch", &t, loss, grads, final);
    }
}

static void run(const struct grid_choice *c, const struct plan *p)
{
    char init[PATH_MAX], grads[PATH_MAX], final[PATH_MAX];
    struct plan_groups groups;
    int64_t sent[PLAN_GROUPS];
    double loss[STEPS];

    snprintf(grads, sizeof grads, "%s/grads", folder);
    snprintf(final, sizeof final, "%s/final", folder);
    struct train_args a = args_on(c, p, false, grads, init);
    plan_groups(p, &groups);
    witness_all(&groups, sent);
    struct train *t = train_open(&a, &(struct train_refusal){ 0 });
    if (!t) {
        complain("rank %d: it does not begin\n", rank);
        return;
    }
    if (run_steps(t, loss, final) == 0) {
        check_counts(t);
        check_sent(p, t, sent);
        check_memory(t);
        check_elsewhere(t);
        check_moved(t);
        if (rank == 0)
            check_results(c, p, loss, grads, final);
    }
    train_close(t);
}

static int run_list(const char *path, int from)
{
    struct grid_choice c;
    struct plan p;
    char name[512], why[512];
    FILE *f = fopen(path, "r");
    int ranks;

    if (!f)
        return 2;
    for (int i = 0; read_choice(f, &ranks, &c); i++) {
        if (i < from || ranks != world)
            continue;
        if (!grid_plan(&c, &p, why, sizeof why))
            return 2;
        grid_words(&c, &p, name, sizeof name);
        plan_begins(i, name);
        if (folder)
            run(&c, &p);
        else
            resume_plan(&p, NULL);
        plan_ends();
    }
    fclose(f);
    return 0;
}

int main(int argc, char **argv)
{
    int rc = 2;

    grid_models_load();
    if (argc == 3 && !strcmp(argv[1], "list"))
        return list(argv[2]);
    start_ranks(&argc, &argv);
    if (argc >= 4 && !strcmp(argv[1], "run")) {
        folder = argv[3];
        rc = run_list(argv[2], argc > 4 ? atoi(argv[4]) : 0);
    }
    if (argc >= 3 && !strcmp(argv[1], "resume"))
        rc = run_list(argv[2], argc > 3 ? atoi(argv[3]) : 0);
    grid_models_free();
    MPI_Finalize();
    return rc;
}
