/* Golden collective lists: what PyTorch and DeepSpeed issued when they were run,
 * recorded by the scripts beside the lists, against the schedules of the same plan.
 * Every file is a test; the recorders' heads state the format. */
#include "tests/check.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/fail.h"
#include "model/lower.h"

#define GOLDEN "tests/golden/collectives/"

struct list { char **line; int n, cap; };

static void push(struct list *l, const char *line)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->line = realloc(l->line, (size_t)l->cap * sizeof *l->line);
        assert_non_null(l->line);
    }
    l->line[l->n++] = strdup(line);
}

static void clear(struct list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->line[i]);
    free(l->line);
    *l = (struct list){ 0 };
}

/* ---- a recorded file: the plan, and for each rank init, first, steady, steady2 ---- */

enum { STEADY2 = NSCHED, STEADY3, NLISTS };
enum { MAX_RANKS = 8 };

struct golden {
    struct plan plan;
    int64_t     rank[MAX_RANKS];
    struct list list[MAX_RANKS][NLISTS];
    bool        has[NLISTS];
    int         nranks;
};

static int section(const char *line)
{
    static const char *const names[NLISTS] = { "init", "first", "steady", "steady2", "steady3" };

    for (int i = 0; i < NLISTS; i++)
        if (!strcmp(line, names[i]))
            return i;
    return -1;
}

/* "op group dtype elements [reduce-op] [xK]": dtypes in our words, K lines. */
static void add_line(struct list *l, char *line)
{
    char op[32], group[32], dtype[32], rest[64] = "", out[200], *x = strrchr(line, ' ');
    long long elems, times = 1;

    if (x && x[1] == 'x' && strspn(x + 2, "0123456789") == strlen(x + 2)) {
        times = atoll(x + 2);
        *x = '\0';
    }
    if (sscanf(line, "%31s %31s %31s %lld %63[^\n]", op, group, dtype, &elems, rest) < 4)
        fail_msg("cannot read \"%s\"", line);
    if (!strcmp(dtype, "i64"))
        strcpy(dtype, "int64");
    if (!strcmp(dtype, "u8"))
        strcpy(dtype, "uint8");
    snprintf(out, sizeof out, "%s %s %s %lld%s%s", op, group, dtype, elems, *rest ? " " : "", rest);
    for (; times > 0; times--)
        push(l, out);
}

/* Options that DeepSpeed takes and ignores, a plan refuses: ZeRO's at stage 0, and
 * grad_accum_dtype at stage 2, which accumulates in the model's dtype all the same. */
static void drop_ignored(json_t *plan)
{
    json_t *options = json_object_get(plan, "deepspeed");
    const char *strategy = json_string_value(json_object_get(plan, "strategy"));

    if (options && !strcmp(strategy, "ddp")) {
        json_object_del(options, "reduce_bucket_size");
        json_object_del(options, "overlap_comm");
    }
    if (options && !strcmp(strategy, "zero2"))
        json_object_del(options, "grad_accum_dtype");
}

static void read_plan(struct golden *g, const char *text, const char *path)
{
    json_error_t where;
    json_t *j = json_loads(text, 0, &where);
    char why[512] = "";

    if (!j)
        fail_msg("%s: plan: %s", path, where.text);
    drop_ignored(j);
    fail_capture(why, sizeof why);
    int rc = plan_from_json(j, path, &g->plan);
    fail_capture(NULL, 0);
    json_decref(j);
    if (rc < 0)
        fail_msg("%s", why);
}

static void read_golden(struct golden *g, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int in = -1;

    memset(g, 0, sizeof *g);
    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (*line == '#' || !*line)
            continue;
        if (!strncmp(line, "plan ", 5)) {
            read_plan(g, line + 5, path);
        } else if (!strncmp(line, "rank ", 5)) {
            assert_true(g->nranks < MAX_RANKS);
            g->rank[g->nranks++] = atoll(line + 5);
        } else if (section(line) >= 0) {
            g->has[in = section(line)] = true;
        } else {
            assert_true(in >= 0 && g->nranks > 0);
            add_line(&g->list[g->nranks - 1][in], line);
        }
    }
    free(line);
    fclose(f);
}

static void free_golden(struct golden *g)
{
    plan_free(&g->plan);
    for (int r = 0; r < g->nranks; r++)
        for (int i = 0; i < NLISTS; i++)
            clear(&g->list[r][i]);
}

/* ---- the schedule's list ---- */

static int note_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    char line[200];
    bool none = o->kind == OP_COLL && o->u.coll.op == COLL_BARRIER;
    bool world = o->kind == OP_COLL && s->group_size[o->u.coll.group] == s->world_size;

    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    snprintf(line, sizeof line, "%s %s %s %" PRId64 "%s%s", coll_name(o->u.coll.op),
             world ? "world" : group_name(o->u.coll.group), none ? "-" : dtype_name(o->u.coll.dtype),
             o->u.coll.elems, o->u.coll.red ? " " : "", red_name(o->u.coll.red));
    push(arg, line);
    return 0;
}

/* The recorder may not have known the reduce-op. */
static bool same(const char *got, const char *want)
{
    size_t n = strlen(want);

    return !strncmp(got, want, n) && (got[n] == '\0' || got[n] == ' ');
}

static void compare(const char *path, int64_t rank, const char *name, const struct list *got,
                    const struct list *want)
{
    for (int i = 0; i < got->n || i < want->n; i++) {
        const char *g = i < got->n ? got->line[i] : "nothing";
        const char *w = i < want->n ? want->line[i] : "nothing";
        if (i < got->n && i < want->n && same(g, w))
            continue;
        fail_msg("%s, rank %" PRId64 ", %s, entry %d of %d (we have %d):\n    recorded: %s\n    ours:     %s\n"
                 "    after:    %s", path, rank, name, i + 1, want->n, got->n, w, g,
                 i > 0 ? want->line[i - 1] : "nothing");
    }
}

static void follows(const char *path, const struct schedules *s, int64_t rank, enum sched_id id,
                    const struct list *want)
{
    struct list got = { 0 };

    sched_walk(s, id, note_op, &got);
    compare(path, rank, sched_name(id), &got, want);
    clear(&got);
}

static bool rebuilds_buckets(const struct plan *p)
{
    return p->dialect == DIALECT_TORCH && (p->strategy == STRAT_DDP || p->strategy == STRAT_ZERO1);
}

/* DDP rebuilds its buckets once, at the start of the second step, and `first` ends with
 * it: so first and steady together are steps 1 and 2, and steady alone every later one.
 * With static_graph that happens a step later still: then only the list of step 1 is a
 * beginning of `first`. */
static void follows_with_rebuild(const char *path, const struct schedules *s, int64_t rank,
                                 const struct list *lists, const struct golden *g)
{
    struct list got = { 0 }, want = { 0 };
    bool late = g->has[STEADY3];

    follows(path, s, rank, SCHED_INIT, &lists[SCHED_INIT]);
    follows(path, s, rank, SCHED_STEADY, &lists[late ? STEADY3 : g->has[STEADY2] ? STEADY2 : SCHED_STEADY]);
    sched_walk(s, SCHED_FIRST, note_op, &got);
    for (int i = 0; i < lists[SCHED_FIRST].n; i++)
        push(&want, lists[SCHED_FIRST].line[i]);
    if (late) {
        while (got.n > want.n)
            free(got.line[--got.n]);
    } else {
        sched_walk(s, SCHED_STEADY, note_op, &got);
        for (int i = 0; i < lists[SCHED_STEADY].n; i++)
            push(&want, lists[SCHED_STEADY].line[i]);
    }
    compare(path, rank, "first and second step", &got, &want);
    clear(&got);
    clear(&want);
}

static void follows_the_recording(void **state)
{
    const char *path = *state;
    struct schedules s = { 0 };
    struct golden g;
    char why[512] = "";

    read_golden(&g, path);
    assert_true(g.nranks > 0);
    for (int r = 0; r < g.nranks; r++) {
        fail_capture(why, sizeof why);
        int rc = lower(&g.plan, g.rank[r], &s);
        fail_capture(NULL, 0);
        if (rc < 0)
            fail_msg("%s: not lowered: %s", path, why);
        if (!schedules_check(&s, why, sizeof why))
            fail_msg("%s: %s", path, why);
        if (rebuilds_buckets(&g.plan))
            follows_with_rebuild(path, &s, g.rank[r], g.list[r], &g);
        else
            for (int id = 0; id < NSCHED; id++) {
                int want = id == SCHED_STEADY && g.has[STEADY2] ? STEADY2 : id;
                follows(path, &s, g.rank[r], (enum sched_id)id, &g.list[r][want]);
            }
    }
    schedules_free(&s);
    free_golden(&g);
}

/* ---- one test a file ---- */

static int run_folder(const char *name, const char *pattern, size_t least)
{
    glob_t g;
    struct CMUnitTest *tests;
    int failed = 0;

    if (glob(pattern, 0, NULL, &g) != 0 || g.gl_pathc < least) {
        print_error("%s: fewer than %zu lists in %s\n", name, least, pattern);
        return 1;
    }
    tests = calloc(g.gl_pathc, sizeof *tests);
    if (!tests)
        return 1;
    for (size_t i = 0; i < g.gl_pathc; i++)
        tests[i] = (struct CMUnitTest){ .name = strrchr(g.gl_pathv[i], '/') + 1,
                                        .test_func = follows_the_recording,
                                        .initial_state = g.gl_pathv[i] };
    failed = _cmocka_run_group_tests(name, tests, g.gl_pathc, NULL, NULL);
    free(tests);
    globfree(&g);
    return failed;
}

/* With an argument, only the lists whose names it starts. */
int main(int argc, char **argv)
{
    char deepspeed[256], torch[256];
    const char *which = argc > 1 ? argv[1] : "";
    size_t all = argc > 1 ? 0 : 1;

    snprintf(deepspeed, sizeof deepspeed, GOLDEN "deepspeed/%.80s*.txt", which);
    snprintf(torch, sizeof torch, GOLDEN "torch/%.80s*.txt", which);
    int failed = 0;
    if (!*which || !strncmp(which, "s", 1))
        failed += run_folder("collectives of DeepSpeed", deepspeed, all * 84);
    if (!*which || strncmp(which, "s", 1) != 0)
        failed += run_folder("collectives of PyTorch", torch, all * 40);
    return failed;
}
