/* Golden collective lists: what PyTorch and DeepSpeed issued when they were run,
 * recorded by the scripts beside the lists, against the schedules of the same plan.
 * Every file is a test; the recorders' heads state the format. */
#include "tests/check.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "model/family/family.h"
#include "model/lower/lower.h"
#include "model/plan/local_model.h"
#include "tests/model/as_recorded.h"

#define GOLDEN "tests/golden/collectives/"
#define OFFLOAD "../offload/"                   /* from there; its lists have the same format */
#define GRID "../grid/"
#define TUNE "../tune/"
#define FLOAT8 "../float8/"
#define MEGATRON "../megatron"
#define EXPERTS "../experts"

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

/* ---- a recorded list: the plan, and for each rank init, first, steady, steady2 ---- */

enum { STEADY2 = SCHED_STEADY + 1, STEADY3, NLISTS };
enum { MAX_RANKS = 8 };

struct golden {
    struct plan plan;
    int64_t     rank[MAX_RANKS], params[MAX_RANKS];     /* "# N parameters" behind a rank: so many it has; 0: not said */
    struct list list[MAX_RANKS][NLISTS];
    bool        has[NLISTS];
    int         nranks, emptied;                        /* calls of torch.cuda.empty_cache() in init; -1: not said */
};

#define EMPTIED "# empty_cache() was called "

static int section(const char *line)
{
    static const char *const names[NLISTS] = { "init", "first", "steady", "steady2", "steady3" };

    for (int i = 0; i < NLISTS; i++)
        if (!strcmp(line, names[i]))
            return i;
    return -1;
}

/* "op group/size dtype elements [reduce-op] [root R] [xK]": dtypes in our words, K lines. That a message is in a
 * batch is in test_pipeline_comm.c. */
static void add_line(struct list *l, char *line)
{
    char op[32], group[32], dtype[32], rest[64] = "", out[200], *x = strstr(line, " batch");
    long long elems, times = 1;

    if (x)
        memmove(x, x + 6, strlen(x + 6) + 1);
    x = strrchr(line, ' ');

    if (x && x[1] == 'x' && strspn(x + 2, "0123456789") == strlen(x + 2)) {
        times = atoll(x + 2);
        *x = '\0';
    }
    if (sscanf(line, "%31s %31s %31s %lld %63[^\n]", op, group, dtype, &elems, rest) < 4)
        fail_msg("cannot read \"%s\"", line);
    if (!strcmp(dtype, "i64"))
        strcpy(dtype, "int64");
    if (!strcmp(dtype, "i32"))
        strcpy(dtype, "int32");
    if (!strcmp(dtype, "i8"))
        strcpy(dtype, "int8");
    if (!strcmp(dtype, "u8"))
        strcpy(dtype, "uint8");
    snprintf(out, sizeof out, "%s %s %s %lld%s%s", op, group, dtype, elems, *rest ? " " : "", rest);
    for (; times > 0; times--)
        push(l, out);
}

/* Options that DeepSpeed takes and ignores, a plan refuses: ZeRO's at stage 0, and
 * grad_accum_dtype at stage 2, which before 0.19.8 accumulates in the model's dtype all the same. */
static void drop_ignored(json_t *plan)
{
    json_t *options = json_object_get(plan, "deepspeed");
    const char *strategy = json_string_value(json_object_get(plan, "strategy"));

    if (options && !strcmp(strategy, "ddp")) {
        json_object_del(options, "reduce_bucket_size");
        json_object_del(options, "overlap_comm");
    }
    if (options && !strcmp(strategy, "zero2") && !json_object_get(plan, "framework_version"))
        json_object_del(options, "grad_accum_dtype");
}

/* false: the plan is recorded before a lowering has it. */
static bool read_plan(struct golden *g, const char *text, const char *path)
{
    json_error_t where;
    json_t *j = json_loads(text, 0, &where);
    char why[512] = "";

    if (!j)
        fail_msg("%s: plan: %s", path, where.text);
    drop_ignored(j);
    fail_capture(why, sizeof why);
    as_recorded(j);
    int rc = plan_from_json(j, path, &g->plan);
    fail_capture(NULL, 0);
    json_decref(j);
    /* recorded before a lowering has it; of DDP the recording shows that gradients are left unreduced */
    if (rc < 0 && !strstr(why, " yet") && !strstr(why, "runs no hooks"))
        fail_msg("%s", why);
    return rc == 0;
}

/* A file is one list, or several that begin with "list NAME". */
struct recording { char *path, *name; int at; };

static char *next_line(FILE *f, char **line, size_t *room)
{
    if (getline(line, room, f) <= 0)
        return NULL;
    (*line)[strcspn(*line, "\n")] = '\0';
    return *line;
}

static bool read_golden(struct golden *g, const struct recording *which)
{
    FILE *f = fopen(which->path, "r");
    char *line = NULL;
    size_t room = 0;
    int in = -1, list = 0;
    bool modelled = true;

    memset(g, 0, sizeof *g);
    g->emptied = -1;
    assert_non_null(f);
    while (modelled && next_line(f, &line, &room)) {
        if (!strncmp(line, "list ", 5))
            list++;
        else if (list == which->at && g->nranks > 0 && *line == '#' && strstr(line, " parameters"))
            g->params[g->nranks - 1] = atoll(line + 2);
        else if (list == which->at && !strncmp(line, EMPTIED, strlen(EMPTIED)))
            g->emptied = atoi(line + strlen(EMPTIED));
        else if (*line == '#' || !*line || list != which->at)
            continue;
        else if (!strncmp(line, "plan ", 5)) {
            modelled = read_plan(g, line + 5, which->name);
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
    return modelled;
}

static void free_golden(struct golden *g)
{
    plan_free(&g->plan);
    for (int r = 0; r < g->nranks; r++)
        for (int i = 0; i < NLISTS; i++)
            clear(&g->list[r][i]);
}

/* ---- the schedule's list ---- */

/* An all-to-all in which all goes to the next rank. */
static bool goes_on(const struct schedules *s, const struct op *o)
{
    const struct mesh_group *g = &sched_group(s, o)->of;
    int64_t n = mesh_ranks(g), next = (mesh_place(g, s->rank) + 1) % n;

    return o->u.coll.op == COLL_ALL_TO_ALL && o->u.coll.parts && s->coll_parts[o->u.coll.parts + next].sent == o->u.coll.elems;
}

static int note_op(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    static const bool rooted[NCOLL] = { [COLL_BROADCAST] = true, [COLL_REDUCE] = true, [COLL_SCATTER] = true,
                                        [COLL_GATHER] = true };
    char line[200], root[32] = "";

    (void)iteration;
    if (o->kind != OP_COLL)
        return 0;
    const struct plan_group *g = sched_group(s, o);
    int64_t size = g->ranks;
    bool none = o->u.coll.op == COLL_BARRIER, world = size == s->world_size, axis = g->is >= GROUP_TENSOR;
    if (coll_is_message((enum coll_op)o->u.coll.op))
        snprintf(root, sizeof root, " %s %" PRId32, o->u.coll.op == COLL_SEND ? "to" : "from", o->u.coll.peer);
    if (rooted[o->u.coll.op])
        snprintf(root, sizeof root, " root %" PRId32, o->u.coll.root);
    if (goes_on(s, o))
        snprintf(root, sizeof root, " to next");
    snprintf(line, sizeof line, "%s %s/%" PRId64 " %s %" PRId64 "%s%s%s", coll_name(o->u.coll.op),
             world && !axis ? "world" : g->is == GROUP_ROOT_RESHARD ? "reshard" : g->name, size, none ? "-" : dtype_name(o->u.coll.dtype),
             o->u.coll.elems, o->u.coll.red ? " " : "", red_name(o->u.coll.red), root);
    push(arg, line);
    return 0;
}

static void compare(const char *path, int64_t rank, const char *name, const struct list *got,
                    const struct list *want)
{
    for (int i = 0; i < got->n || i < want->n; i++) {
        const char *g = i < got->n ? got->line[i] : "nothing";
        const char *w = i < want->n ? want->line[i] : "nothing";
        if (i < got->n && i < want->n && !strcmp(g, w))
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
    if (g->plan.parallel.pipeline > 1) {    /* later stages rebuild after their first receive: `first` cannot end with it */
        for (int i = 0; i < 2 * g->plan.parallel.virtual_stages; i++) {
            if (!strstr(got.line[got.n - 1], "broadcast") || !strstr(got.line[got.n - 1], "int32"))
                fail_msg("%s: no rebuilt buckets", path);
            free(got.line[--got.n]);
        }
        compare(path, rank, "first", &got, &lists[SCHED_FIRST]);
        clear(&got);
        return;
    }
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

/* PowerSGD begins at step 3: `first` is step 1 and the rebuilding of buckets, step 2 is that and what the plan without a hook
 * does at every step. */
static void follows_before_powersgd(const char *path, const struct schedules *s, int64_t rank, const struct list *lists, const struct golden *g)
{
    struct schedules whole = { 0 };
    struct list got = { 0 }, want = { 0 };
    struct plan p = g->plan;

    p.ddp.comm_hook = HOOK_NONE;
    assert_int_equal(lower(&p, rank, &whole), 0);
    sched_walk(s, SCHED_FIRST, note_op, &got);
    sched_walk(&whole, SCHED_STEADY, note_op, &got);
    for (int i = 0; i < lists[SCHED_FIRST].n; i++)
        push(&want, lists[SCHED_FIRST].line[i]);
    for (int i = 0; i < lists[SCHED_STEADY].n; i++)
        push(&want, lists[SCHED_STEADY].line[i]);
    compare(path, rank, "steps 1 and 2", &got, &want);
    follows(path, s, rank, SCHED_INIT, &lists[SCHED_INIT]);
    follows(path, s, rank, SCHED_STEADY, &lists[STEADY2]);
    clear(&got);
    clear(&want);
    schedules_free(&whole);
}

static void has_params(const struct plan *p, int64_t rank, int64_t want)
{
    struct local_model local;

    assert_int_equal(local_model_of(p, rank, &local), 0);
    assert_int_equal(local.model->params, want);
    local_model_free(&local);
}

static int empties(const struct schedules *s, const struct op *o, int64_t iteration, void *arg)
{
    (void)s;
    (void)iteration;
    *(int *)arg += o->kind == OP_MEMORY && o->flags & OPF_EMPTIES;
    return 0;
}

/* In steps it never is. */
static void empties_the_cache(const char *path, const struct schedules *s, int want)
{
    for (int id = 0; id <= SCHED_STEADY && want >= 0; id++) {
        int n = 0;
        sched_walk(s, (enum sched_id)id, empties, &n);
        if (n != (id == SCHED_INIT ? want : 0))
            fail_msg("%s: the cache is emptied %d times, not %d", path, n, want);
    }
}

static void follows_the_recording(void **state)
{
    const struct recording *which = *state;
    const char *path = which->name;
    struct schedules s = { 0 };
    struct golden g;
    char why[512] = "";

    if (!read_golden(&g, which))
        skip();
    assert_true(g.nranks > 0);
    for (int r = 0; r < g.nranks; r++) {
        fail_capture(why, sizeof why);
        if (lower_check(&g.plan) < 0) {         /* recorded before a lowering has it */
            fail_capture(NULL, 0);
            skip();
        }
        int rc = lower(&g.plan, g.rank[r], &s);
        fail_capture(NULL, 0);
        if (rc < 0)
            fail_msg("%s: not lowered: %s", path, why);
        if (!schedules_check(&s, why, sizeof why))
            fail_msg("%s: %s", path, why);
        if (g.params[r] > 0)
            has_params(&g.plan, g.rank[r], g.params[r]);
        empties_the_cache(path, &s, g.emptied);
        if (g.plan.ddp.comm_hook == HOOK_POWERSGD)
            follows_before_powersgd(path, &s, g.rank[r], g.list[r], &g);
        else if (rebuilds_buckets(&g.plan))
            follows_with_rebuild(path, &s, g.rank[r], g.list[r], &g);
        else
            for (int id = 0; id <= SCHED_STEADY; id++) {
                int want = id == SCHED_STEADY && g.has[STEADY2] ? STEADY2 : id;
                follows(path, &s, g.rank[r], (enum sched_id)id, &g.list[r][want]);
            }
    }
    schedules_free(&s);
    free_golden(&g);
}

/* ---- one test a list ---- */

static char *format(const char *a, const char *b, const char *c)
{
    char *out = malloc(strlen(a) + strlen(b) + strlen(c) + 1);

    assert_non_null(out);
    strcpy(out, a);
    strcat(out, b);
    return strcat(out, c);
}

struct tests { struct CMUnitTest *test; struct recording *list; size_t n; };

static void add_test(struct tests *t, const char *path, const char *name, int at)
{
    t->list = realloc(t->list, (t->n + 1) * sizeof *t->list);
    assert_non_null(t->list);
    const char *file = strrchr(path, '/') + 1;
    t->list[t->n++] = (struct recording){ strdup(path), format(file, *name ? " " : "", name), at };
}

static void add_file(struct tests *t, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int n = 0;

    assert_non_null(f);
    while (next_line(f, &line, &room))
        if (!strncmp(line, "list ", 5))
            add_test(t, path, line + 5, ++n);
    if (n == 0)
        add_test(t, path, "", 0);
    free(line);
    fclose(f);
}

static int run_folder(const char *folder, const char *which, size_t least)
{
    struct tests t = { 0 };
    char pattern[256];
    glob_t g;
    int failed = 0;

    snprintf(pattern, sizeof pattern, GOLDEN "%s/%.80s*.txt", folder, which);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            add_file(&t, g.gl_pathv[i]);
    if (t.n < least) {
        print_error("%s: fewer than %zu lists\n", pattern, least);
        failed = 1;
    }
    t.test = calloc(t.n + 1, sizeof *t.test);
    assert_non_null(t.test);
    for (size_t i = 0; i < t.n; i++)
        t.test[i] = (struct CMUnitTest){ .name = t.list[i].name, .test_func = follows_the_recording,
                                         .initial_state = &t.list[i] };
    if (t.n > 0)
        failed += _cmocka_run_group_tests(folder, t.test, t.n, NULL, NULL);
    for (size_t i = 0; i < t.n; i++) {
        free(t.list[i].path);
        free(t.list[i].name);
    }
    free(t.list);
    free(t.test);
    globfree(&g);
    return failed;
}

/* GPT-2's lists, and most of Llama's, are the files outside of families/. */
static bool has_row(json_t *rows, const char *family)
{
    const char *name;
    json_t *row;

    json_object_foreach(rows, name, row)
        if (!strcmp(json_string_value(json_object_get(row, "model_type")), family))
            return true;
    return !strcmp(family, "gpt2");
}

/* Mixtures of experts, of which those of families.json are planned. */
static bool has_experts(const struct family *f)
{
    for (const struct module_row *p = f->block; p && p->module; p++)
        if (p->role == ROLE_ROUTER)
            return true;
    return false;
}

static void every_family_has_golden_lists(void **state)
{
    static const char *const folder[] = { "torch", "deepspeed" };
    json_t *rows = json_load_file(GOLDEN "families.json", 0, NULL), *row;
    const struct family *f;
    const char *name;
    char path[256];

    (void)state;
    assert_non_null(rows);
    for (int i = 0; (f = family_at(i)) != NULL; i++)
        if (!has_experts(f) && !f->megatron_only && !f->kinds[0] && !has_row(rows, f->name))     /* on CPUs there is no fused Mamba-2 */
            fail_msg(GOLDEN "families.json: no model of family %s", f->name);
    json_object_foreach(rows, name, row)
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, GOLDEN "%s/families/%s.txt", folder[i], name);
            if (access(path, R_OK) != 0)
                fail_msg("%s is not there: record it", path);
        }
    json_decref(rows);
}

/* With an argument, only the files whose names it starts. */
int main(int argc, char **argv)
{
    static const struct { const char *folder; size_t least; } all[] = {
        { TUNE "lists", 219 },
        { FLOAT8 "lists", 12 },
        { "deepspeed", 104 },
        { "deepspeed-0.19.8", 53 },
        { "torch", 143 },
        { "deepspeed/families", 268 },
        { "torch/families", 400 },
        { OFFLOAD "0.19.6", 38 },
        { OFFLOAD "0.19.8", 46 },
        { GRID "torch", 100 },
        { MEGATRON, 265 },
        { EXPERTS, 111 },
        { "../module/deepspeed", 9 },
        { "../module/torch", 23 },
    };
    const struct CMUnitTest whole[] = { cmocka_unit_test(every_family_has_golden_lists) };
    int failed = argc > 1 ? 0 : cmocka_run_group_tests_name("families", whole, NULL, NULL);

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        failed += run_folder(all[i].folder, argc > 1 ? argv[1] : "", argc > 1 ? 0 : all[i].least);
    return failed;
}
