/* zero3_recorded.c -- the module hooks of a recorded module: they were recorded, with the kernels before which they come (docs/howto/model-file.md).
 *
 * A piece's modules are those of its unit, which each unit with that piece has anew, or named by a whole path, which are the same for all pieces. */
#include "model/framework/deepspeed_3/zero3_trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/arch/recorded.h"
#include "model/plan/recorded_check.h"

struct builder {
    const struct ds *d;
    const struct recorded *r;
    struct z3_trace *t;
    const char **root;              /* names of modules with a whole path; of those of units NULL */
    int64_t cap_root, cap_modules;
    int *of_unit;                   /* each unit's modules: the first one */
    int *open[2]; int64_t cap_open[2];      /* per module: fetches of forward, of backward that were not released */
};

/* ---- modules ---- */

/* Is it the tensor, or a name of it, of the module at `path` itself, or below it? */
static bool is_of(const char *tensor, const char *path, bool below)
{
    size_t n = strlen(path);
    const char *own = n == 0 ? tensor : !strncmp(tensor, path, n) && tensor[n] == '.' ? tensor + n + 1 : NULL;

    return own && (below || !strchr(own, '.'));
}

/* All tensors below a module follow each other. */
static void find_below(const struct model *m, const char *path, struct z3_module *own)
{
    for (int i = 0; i < m->ntensors; i++) {
        if (!is_of(m->tensors[i].name, path, true))
            continue;
        own->all_first = own->all_n == 0 ? i : own->all_first;
        own->all_n = i + 1 - own->all_first;
    }
}

/* Its tensors, ascending, by their own names and by others; which is -1 where there are too many. */
static int list_own(const struct builder *b, const char *path, int *list, bool *shared)
{
    const struct model *m = b->d->m;
    const struct recorded *r = b->r;
    int n = 0;

    for (int i = 0; i < m->ntensors; i++) {
        bool mine = is_of(m->tensors[i].name, path, false);
        for (int k = 0; k < r->nshared && !mine; k++)
            if (r->shared[k].tensor == i && is_of(r->shared[k].name, path, false))
                mine = *shared = true;
        if (mine && n == Z3_MOST_OWN)
            return -1;
        if (mine)
            list[n++] = i;
    }
    return n;
}

/* Two modules have a tensor at most: the bit is theirs. */
static int check_shared(const struct builder *b, const int *list, int n)
{
    for (int i = 0; i < n; i++) {
        int names = 0;
        for (int k = 0; k < b->r->nshared; k++)
            names += b->r->shared[k].tensor == list[i];
        if (names > 1)
            return fail("%s: %s has more than two names: what stage 3 does with it is not followed", b->r->name, b->d->m->tensors[list[i]].name);
    }
    return 0;
}

static int own_tensors(struct builder *b, const char *path, struct z3_module *own)
{
    int list[Z3_MOST_OWN];
    bool shared = false;
    int n = list_own(b, path, list, &shared);

    *own = (struct z3_module){ .kernel_module = -1, .bit = shared ? 2 : 1, .n = n, .first = n > 0 ? list[0] : 0 };
    find_below(b->d->m, path, own);
    if (n < 0)
        return fail("%s: %s has more than %d parameters of its own: what stage 3 releases of them is not followed", b->r->name, path, Z3_MOST_OWN);
    if (shared && check_shared(b, list, n) < 0)
        return -1;
    if (n == 0 || list[n - 1] == list[0] + n - 1)
        return 0;
    int *kept = room_new((size_t)n, sizeof *kept);
    memcpy(kept, list, (size_t)n * sizeof *kept);
    b->t->lists = room_for(b->t->lists, b->t->nlists, &b->t->cap_lists, sizeof *b->t->lists);
    own->own = b->t->lists[b->t->nlists++] = kept;
    return 0;
}

static int new_module(struct builder *b, const char *root)
{
    b->t->modules = room_for(b->t->modules, b->t->nmodules, &b->cap_modules, sizeof *b->t->modules);
    b->root = room_for(b->root, b->t->nmodules, &b->cap_root, sizeof *b->root);
    for (int back = 0; back < 2; back++) {
        b->open[back] = room_for(b->open[back], b->t->nmodules, &b->cap_open[back], sizeof **b->open);
        b->open[back][b->t->nmodules] = 0;
    }
    b->root[b->t->nmodules] = root;
    return b->t->nmodules++;
}

/* A module with a whole path; -1: reported. */
static int root_module(struct builder *b, const char *path)
{
    int at = 0;

    while (at < b->t->nmodules && b->root[at] != path)
        at++;
    if (at < b->t->nmodules)
        return at;
    at = new_module(b, path);
    return own_tensors(b, path, &b->t->modules[at]) < 0 ? -1 : at;
}

/* The same of a unit whose piece another one has. */
static void shift(const struct builder *b, struct z3_module *x, int from, int to)
{
    int by = b->r->first[to] - b->r->first[from];

    x->first += x->n > 0 ? by : 0;
    x->all_first += x->all_n > 0 ? by : 0;
}

/* The modules of a unit follow each other, in the order of its piece's; those with a whole path have a place there, which is not used. */
static int add_unit(struct builder *b, const struct rec_program *g, int u)
{
    const struct rec_piece *p = &b->r->pieces[g->kind[g->of_unit[u]]];
    char path[200];
    int twin = 0;

    b->of_unit[u] = b->t->nmodules;
    while (g->of_unit[twin] != g->of_unit[u])
        twin++;
    for (int i = 0; i < p->nmodules; i++) {
        const char *name = b->r->modules[p->module0 + i];
        snprintf(path, sizeof path, "%s%s", b->r->unit[u], strcmp(name, ".") ? name : "");
        int at = new_module(b, NULL);
        struct z3_module *own = &b->t->modules[at];
        *own = b->t->modules[b->of_unit[twin] + i];
        if (twin < u && own->bit == 1 && !own->own && b->r->alike[u] == b->r->alike[twin])
            shift(b, own, twin, u);
        else if (own_tensors(b, path, own) < 0)
            return -1;
    }
    return 0;
}

/* ---- events ---- */

static void border(struct builder *b, enum z3_kind kind, enum piece_id piece, enum pass pass, int block)
{
    struct z3_event *e = z3_trace_event(b->t, kind, 0, block);

    e->piece = (uint8_t)piece;
    e->pass = (uint8_t)pass;
}

static int add_hook(struct builder *b, const struct rec_piece *p, const struct rec_hook *h, int u)
{
    static const struct { enum z3_kind kind; bool backward; } kinds[NREC_HOOK] = {
        [REC_FETCH] = { Z3_FETCH, false }, [REC_RELEASE] = { Z3_RELEASE, false }, [REC_FETCH_BACK] = { Z3_FETCH, true },
        [REC_RELEASE_BACK] = { Z3_RELEASE, true }, [REC_TAKE] = { Z3_GRAD, true },
    };
    const char *name = h->kind == REC_TAKE ? "" : b->r->modules[p->module0 + h->of];
    int module = h->kind == REC_TAKE ? 0 : name[0] == '.' ? b->of_unit[u] + h->of : root_module(b, name);

    if (module < 0)
        return -1;
    bool back = h->kind == REC_FETCH_BACK || h->kind == REC_RELEASE_BACK, releases = h->kind == REC_RELEASE || h->kind == REC_RELEASE_BACK;
    b->open[back][module] += h->kind == REC_TAKE ? 0 : releases ? -1 : 1;
    if (b->open[back][module] < 0)
        return fail("%s: programs: hooks: %s%s is released, and was not fetched", b->r->name, u < 0 || name[0] != '.' ? "" : b->r->unit[u], strcmp(name, ".") ? name : "");
    struct z3_event *e = z3_trace_event(b->t, kinds[h->kind].kind, module, u < 0 ? 0 : u);
    e->backward = kinds[h->kind].backward;
    e->kernel = h->kernel;
    if (h->kind == REC_FETCH_BACK)
        b->t->modules[module].has_backward = true;
    if (h->kind == REC_TAKE)
        e->tensor = u < 0 ? h->of : recorded_tensor(b->r, u, h->of);
    return 0;
}

static int add_pass(struct builder *b, int piece, enum piece_id id, enum pass pass, int u)
{
    const struct rec_piece *p = &b->r->pieces[piece];

    border(b, Z3_ENTER, id, pass, u < 0 ? 0 : u);
    for (int i = p->hook0[pass]; i < p->hook0[pass] + p->nhooks[pass]; i++)
        if (add_hook(b, p, &b->r->hooks[i], u) < 0)
            return -1;
    border(b, Z3_LEAVE, id, pass, u < 0 ? 0 : u);
    return 0;
}

static int add_units(struct builder *b, const struct rec_program *g, enum pass pass)
{
    int n = b->r->nunits;

    for (int i = 0; i < n; i++) {
        int u = pass == PASS_FORWARD ? i : n - 1 - i;
        if (add_pass(b, g->kind[g->of_unit[u]], ds_piece(b->d, u), pass, u) < 0)
            return -1;
    }
    return 0;
}

static int build(struct builder *b, const struct rec_program *g)
{
    for (int u = 0; u < b->r->nunits; u++)
        if (add_unit(b, g, u) < 0)
            return -1;
    if (add_pass(b, g->first, PIECE_EMBED, PASS_FORWARD, -1) < 0 || add_units(b, g, PASS_FORWARD) < 0 ||
        add_pass(b, g->last, PIECE_HEAD, PASS_FORWARD, -1) < 0)
        return -1;
    b->t->backward = b->t->nevents;
    return add_pass(b, g->last, PIECE_HEAD, PASS_BACKWARD, -1) < 0 || add_units(b, g, PASS_BACKWARD) < 0 ||
           add_pass(b, g->first, PIECE_EMBED, PASS_BACKWARD, -1) < 0 ? -1 : 0;
}

int z3_trace_recorded(const struct ds *d, struct z3_trace *t)
{
    const struct plan *p = d->p;
    const struct recorded *r = d->m->recorded;
    struct builder b = { .d = d, .r = r, .t = t, .of_unit = room_new((size_t)r->nunits, sizeof *b.of_unit) };
    const struct rec_program *g = recorded_program(r, recorded_precision(p), recorded_again(p), true);
    int rc = g ? build(&b, g) : fail("%s: it was not recorded under stage 3", r->name);

    free(b.root);
    free(b.open[0]);
    free(b.open[1]);
    free(b.of_unit);
    return rc;
}
