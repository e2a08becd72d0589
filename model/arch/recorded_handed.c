/* recorded_handed.c -- what the pieces of a recorded program hand to each other: nothing stays behind a step, nothing goes that did not come, and nothing
 * goes before it came, units running in their order and backward the other way round. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"
#include "model/arch/recorded_internal.h"

/* Tensors of one size that a pass of some piece leaves and another piece frees: how many more come than go in a step. */
struct handed { struct rec_size bytes; bool backward; int64_t n, live; const char *op, *piece; };
/* In a pass of a piece, of the balance's row `of`: how many more come than go, and the least that this is on the way. */
struct change { int64_t of, n, least; };
struct changes { struct change *at; int64_t n, room; };
/* `pass`: of piece i forward is [2 * i], backward [2 * i + 1]; the first piece, the last, the kinds of units. */
struct balance { struct handed *at; int64_t n, room; struct changes *pass; };

static bool same_size(const struct recorded *r, struct rec_size a, struct rec_size b)
{
    for (int i = 0; i < a.n && a.n == b.n; i++) {
        const struct rec_term *x = &r->terms[a.first + i], *y = &r->terms[b.first + i];
        if (x->num != y->num || x->den != y->den || x->pb != y->pb || x->ps != y->ps)
            return false;
    }
    return a.n == b.n;
}

static int64_t row_of(struct balance *b, const struct recorded *r, struct handed of)
{
    for (int64_t i = 0; i < b->n; i++)
        if (b->at[i].backward == of.backward && same_size(r, b->at[i].bytes, of.bytes))
            return i;
    b->at = room_for(b->at, b->n, &b->room, sizeof *b->at);
    b->at[b->n] = of;
    return b->n++;
}

static void count_change(struct changes *c, int64_t row, int64_t n)
{
    int64_t i = 0;

    while (i < c->n && c->at[i].of != row)
        i++;
    if (i == c->n) {
        c->at = room_for(c->at, c->n, &c->room, sizeof *c->at);
        c->at[c->n++] = (struct change){ .of = row };
    }
    c->at[i].n += n;
    if (c->at[i].n < c->at[i].least)
        c->at[i].least = c->at[i].n;
}

/* `times`: how many units have the piece. */
static void count_piece(struct balance *b, const struct recorded *r, const struct rec_piece *p, int piece, int64_t times)
{
    for (int pass = 0; pass < 2; pass++)
        for (int k = p->kernel0[pass]; k < p->kernel0[pass] + p->nkernels[pass]; k++)
            for (int i = r->kernels[k].move0; i < r->kernels[k].move0 + r->kernels[k].nmoves; i++) {
                const struct rec_move *m = &r->moves[i];
                bool comes = m->does == REC_COMES && m->handed_on && m->mem != REC_GRADIENT;
                if ((!comes && m->does != REC_GOES_OTHERS) || m->bytes.n == 0)
                    continue;
                int64_t row = row_of(b, r, (struct handed){ .bytes = m->bytes, .backward = comes ? pass == 1 : m->backward, .op = r->kernels[k].name, .piece = p->name });
                b->at[row].n += comes ? times : -times;
                count_change(&b->pass[2 * piece + pass], row, comes ? 1 : -1);
            }
}

static int wrong(const struct rec_program *g, const char *where, const struct handed *h, const char *how)
{
    return fail("%s: programs: %s: piece \"%.40s\": %.60s: does: of tensors of this size that %s leaves to other pieces, %s; a size is written alike where it "
                "comes and goes", where, g->precision, h->piece, h->op, h->backward ? "backward" : "forward", how);
}

static int run_pass(struct balance *b, const struct rec_program *g, int pass_of_piece, const char *where)
{
    const struct changes *c = &b->pass[pass_of_piece];

    for (int64_t i = 0; i < c->n; i++) {
        struct handed *h = &b->at[c->at[i].of];
        if (h->live + c->at[i].least < 0)
            return wrong(g, where, h, "some go before they come");
        h->live += c->at[i].n;
    }
    return 0;
}

/* Of a file whose units change so much that this would take seconds the replay of the allocator's requests finds it. */
#define MOST_CHANGES (INT64_C(1) << 26)

static int check_order(struct balance *b, const struct recorded *r, const struct rec_program *g, const char *where)
{
    int64_t work = 0;

    for (int u = 0; u < r->nunits; u++)
        work += b->pass[2 * (2 + g->of_unit[u])].n + b->pass[2 * (2 + g->of_unit[u]) + 1].n;
    if (work > MOST_CHANGES)
        return 0;
    int rc = run_pass(b, g, 0, where);
    for (int u = 0; u < r->nunits && rc == 0; u++)
        rc = run_pass(b, g, 2 * (2 + g->of_unit[u]), where);
    for (int pass = 0; pass < 2 && rc == 0; pass++)
        rc = run_pass(b, g, 2 + pass, where);
    for (int u = r->nunits - 1; u >= 0 && rc == 0; u--)
        rc = run_pass(b, g, 2 * (2 + g->of_unit[u]) + 1, where);
    return rc < 0 ? -1 : run_pass(b, g, 1, where);
}

int recorded_check_handed(const struct recorded *r, const struct rec_program *g, const char *where)
{
    struct balance b = { .pass = room_new((size_t)(2 * (g->nkinds + 2)), sizeof *b.pass) };
    int rc = 0;

    count_piece(&b, r, &r->pieces[g->first], 0, 1);
    count_piece(&b, r, &r->pieces[g->last], 1, 1);
    for (int k = 0; k < g->nkinds; k++) {
        int64_t times = 0;
        for (int u = 0; u < r->nunits; u++)
            times += g->of_unit[u] == k;
        count_piece(&b, r, &r->pieces[g->kind[k]], k + 2, times);
    }
    for (int64_t i = 0; i < b.n && rc == 0; i++)
        if (b.at[i].n != 0)
            rc = wrong(g, where, &b.at[i], b.at[i].n > 0 ? "some never go" : "more go than come");
    if (rc == 0)
        rc = check_order(&b, r, g, where);
    for (int i = 0; i < 2 * (g->nkinds + 2); i++)
        free(b.pass[i].at);
    free(b.pass);
    free(b.at);
    return rc;
}
