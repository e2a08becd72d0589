/* mesh.c -- places of ranks on axes, and the members of each group by rule, without a list of ranks. */
#include "model/cluster/mesh.h"

#include <assert.h>
#include <stddef.h>

int64_t mesh_world(const struct mesh *m)
{
    int64_t n = 1;

    for (int a = 0; a < NAXIS; a++)
        n *= m->size[a];
    return n;
}

int64_t mesh_digit(const struct mesh *m, int64_t rank, enum mesh_axis a)
{
    int64_t stride = 1;

    for (int i = NAXIS - 1; m->order[i] != a; i--)
        stride *= m->size[m->order[i]];
    return rank / stride % m->size[a];
}

/* Appends a faster digit; one that continues the last as a run is merged with it. */
static void append(struct mesh_group *g, struct mesh_digit d)
{
    struct mesh_digit *last = g->ndigits ? &g->digit[g->ndigits - 1] : NULL;

    if (d.size == 1)
        return;
    if (last && last->stride == d.size * d.stride)
        *last = (struct mesh_digit){ last->size * d.size, d.stride };
    else
        g->digit[g->ndigits++] = d;
}

struct mesh_group mesh_group(const struct mesh *m, unsigned axes)
{
    struct mesh_group g = { 0 };
    int64_t stride = mesh_world(m);

    for (int i = 0; i < NAXIS; i++) {
        enum mesh_axis a = m->order[i];
        stride /= m->size[a];
        if (axes & MESH_AXIS(a))
            append(&g, (struct mesh_digit){ m->size[a], stride });
    }
    return g;
}

struct mesh_group mesh_inner(const struct mesh_group *g, int64_t k)
{
    struct mesh_group inner = { 0 };
    int from = g->ndigits;
    int64_t have = 1;

    assert(g->nplaces == 0);
    while (from > 0 && have * g->digit[from - 1].size <= k)
        have *= g->digit[--from].size;
    assert(k % have == 0);
    if (k > have) {
        assert(from > 0 && g->digit[from - 1].size % (k / have) == 0);
        append(&inner, (struct mesh_digit){ k / have, g->digit[from - 1].stride });
    }
    for (int i = from; i < g->ndigits; i++)
        append(&inner, g->digit[i]);
    return inner;
}

struct mesh_group mesh_outer(const struct mesh_group *g, int64_t k)
{
    struct mesh_group outer = { 0 };
    int from = g->ndigits;
    int64_t have = 1;

    assert(g->nplaces == 0);
    while (from > 0 && have * g->digit[from - 1].size <= k)
        have *= g->digit[--from].size;
    for (int i = 0; i + 1 < from; i++)
        append(&outer, g->digit[i]);
    if (from > 0) {
        int64_t within = k / have;
        assert(k % have == 0 && g->digit[from - 1].size % within == 0);
        append(&outer, (struct mesh_digit){ g->digit[from - 1].size / within, g->digit[from - 1].stride * within });
    }
    return outer;
}

/* Ranks that agree in all digits but the group's, whether a list has them or not. */
static int64_t all_ranks(const struct mesh_group *g)
{
    int64_t n = 1;

    for (int i = 0; i < g->ndigits; i++)
        n *= g->digit[i].size;
    return n;
}

struct mesh_group mesh_some(const struct mesh_group *g, int n, const int64_t *places)
{
    struct mesh_group some = *g;

    assert(g->nplaces == 0 && n > 0 && n <= MESH_PLACES);
    for (int i = 0; i < n; i++) {
        assert(places[i] > (i ? places[i - 1] : -1) && places[i] < all_ranks(g));
        some.place[i] = places[i];
    }
    some.nplaces = n;
    return some;
}

int64_t mesh_ranks(const struct mesh_group *g)
{
    return g->nplaces ? g->nplaces : all_ranks(g);
}

int64_t mesh_place(const struct mesh_group *g, int64_t rank)
{
    int64_t place = 0;

    for (int i = 0; i < g->ndigits; i++)
        place = place * g->digit[i].size + rank / g->digit[i].stride % g->digit[i].size;
    for (int i = 0; i < g->nplaces; i++)
        if (g->place[i] == place)
            return i;
    return g->nplaces ? -1 : place;
}

/* Rank of place 0 in the instance of `rank`. */
static int64_t first_of(const struct mesh_group *g, int64_t rank)
{
    int64_t first = rank;

    for (int i = 0; i < g->ndigits; i++)
        first -= rank / g->digit[i].stride % g->digit[i].size * g->digit[i].stride;
    return first;
}

int64_t mesh_member(const struct mesh_group *g, int64_t rank, int64_t i)
{
    int64_t member = first_of(g, rank);

    assert(i >= 0 && i < mesh_ranks(g));
    if (g->nplaces)
        i = g->place[i];
    for (int d = g->ndigits - 1; d >= 0; d--) {
        member += i % g->digit[d].size * g->digit[d].stride;
        i /= g->digit[d].size;
    }
    return member;
}

/* Members rise with their place, for slower digits have larger strides: a node's are consecutive. */
struct mesh_lie mesh_lie(const struct mesh_group *g, int64_t rank, int64_t per_node)
{
    struct mesh_lie l = { .ranks = mesh_ranks(g) };
    int64_t here = 0, node = -1;

    for (int64_t i = 0; i <= l.ranks; i++) {
        int64_t at = i < l.ranks ? mesh_member(g, rank, i) / per_node : -1;
        if (at != node && here > 0) {
            l.nodes++;
            l.most = here > l.most ? here : l.most;
            l.least = l.least == 0 || here < l.least ? here : l.least;
            here = 0;
        }
        node = at;
        here++;
    }
    return l;
}

/* Do nodes cut every instance alike?  Then each digit lies within nodes as a whole, or steps over
 * whole nodes, or is a run that whole nodes cut. */
static bool is_aligned(const struct mesh_group *g, int64_t per_node)
{
    for (int i = 0; i < g->ndigits; i++) {
        int64_t stride = g->digit[i].stride, span = stride * g->digit[i].size;
        bool inside = per_node % span == 0, over = stride % per_node == 0;
        bool cut = per_node % stride == 0 && span % per_node == 0;
        if (!inside && !over && !cut)
            return false;
    }
    return true;
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Ranks after which instances lie on nodes as those before them: an instance lies within a block of
 * the slowest digit's span, and blocks meet the borders of nodes alike after the least common multiple. */
static int64_t repeats_after(const struct mesh_group *g, int64_t world, int64_t per_node)
{
    int64_t span = g->ndigits ? g->digit[0].size * g->digit[0].stride : 1;
    int64_t period = span / gcd(span, per_node) * per_node;

    return period < world ? period : world;
}

struct mesh_lie mesh_slowest(const struct mesh_group *g, int64_t world, int64_t per_node)
{
    struct mesh_lie slowest = { 0 };
    int64_t within = 1;

    if (is_aligned(g, per_node)) {
        if (g->nplaces)
            return mesh_lie(g, 0, per_node);
        for (int i = 0; i < g->ndigits; i++) {
            int64_t room = per_node / g->digit[i].stride;       /* values of the digit on one node */
            within *= room < 1 ? 1 : room < g->digit[i].size ? room : g->digit[i].size;
        }
        slowest.ranks = mesh_ranks(g);
        slowest.most = slowest.least = within;
        slowest.nodes = slowest.ranks / within;
        return slowest;
    }
    for (int64_t r = 0; r < repeats_after(g, world, per_node); r++)
        if (mesh_place(g, r) == 0) {
            struct mesh_lie l = mesh_lie(g, r, per_node);
            if (l.nodes > slowest.nodes || (l.nodes == slowest.nodes && l.least < slowest.least))
                slowest = l;
        }
    return slowest;
}

int64_t mesh_sisters(const struct mesh_group *g, int64_t world, int64_t rank, int64_t per_node)
{
    int64_t node = rank / per_node, n = 0;

    for (int64_t r = node * per_node; r < (node + 1) * per_node && r < world; r++) {
        int64_t place = mesh_place(g, r), last = mesh_ranks(g) - 1;
        if (place < 0)
            continue;
        bool first_here = place == 0 || mesh_member(g, r, place - 1) / per_node != node;
        bool leaves = mesh_member(g, r, 0) / per_node != node || mesh_member(g, r, last) / per_node != node;
        n += first_here && leaves;
    }
    return n;
}
