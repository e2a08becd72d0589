/* grid_covering.h -- which plans of grid_plans.h are run, and why others are not. */
#ifndef DPX_TESTS_MPI_GRID_COVERING_H
#define DPX_TESTS_MPI_GRID_COVERING_H

#include "tests/mpi/grid_plans.h"

/* ---- reasons, told apart by their words, not by their numbers ---- */

enum { GRID_REASONS = 128 };
static struct { char text[240]; int64_t times; } grid_reasons[GRID_REASONS];
static int grid_nreasons;

static void grid_refused(const char *why)
{
    char text[sizeof grid_reasons->text];
    size_t n = 0;

    for (const char *s = why; *s && *s != '\n' && n + 2 < sizeof text; s++)
        if (!isdigit((unsigned char)*s))
            text[n++] = *s;
        else if (n == 0 || text[n - 1] != '#')
            text[n++] = '#';
    text[n] = '\0';
    for (int i = 0; i < grid_nreasons; i++)
        if (!strcmp(grid_reasons[i].text, text)) {
            grid_reasons[i].times++;
            return;
        }
    if (grid_nreasons < GRID_REASONS) {
        strcpy(grid_reasons[grid_nreasons].text, text);
        grid_reasons[grid_nreasons++].times = 1;
    }
}

/* ---- the covering set ---- */

typedef bool grid_pairs[GRID_AXES][GRID_AXES][GRID_MOST][GRID_MOST];

static uint64_t grid_state = 1;

static int grid_random(int n)           /* Knuth's MMIX generator, its high bits */
{
    grid_state = grid_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((grid_state >> 33) % (uint64_t)n);
}

static bool grid_holds(const struct grid_choice *c, enum grid_axis a) { return c->at[a] >= 0; }

/* Values for axes that have none yet (-1).  Degrees are 1 in every second, since few fit together; the world is some multiple
 * of them. */
static void grid_complete(struct grid_choice *c)
{
    int64_t cut = 1;

    for (enum grid_axis a = GRID_TENSOR; a <= GRID_PIPELINE; a++) {
        if (!grid_holds(c, a))
            c->at[a] = grid_random(2) ? 0 : grid_random(grid_size[a]);
        cut *= grid_degree(c, a);
    }
    if (!grid_holds(c, GRID_WORLD))
        c->at[GRID_WORLD] = cut > 8 ? 7 : (int)(cut * (1 + grid_random((int)(8 / cut)))) - 1;
    for (enum grid_axis a = 0; a < GRID_AXES; a++)
        if (!grid_holds(c, a))
            c->at[a] = (a == GRID_TENSOR_FORM && !c->at[GRID_TENSOR]) || (a == GRID_CONTEXT_FORM && !c->at[GRID_CONTEXT]) ||
                       (a == GRID_SCHEDULE && !c->at[GRID_PIPELINE]) ? 0 : grid_random(grid_size[a]);
}

static int grid_uncovered(const struct grid_choice *c, grid_pairs covered)
{
    int n = 0;

    for (int a = 0; a < GRID_AXES; a++)
        for (int b = a + 1; b < GRID_AXES; b++)
            n += !covered[a][b][c->at[a]][c->at[b]];
    return n;
}

enum { GRID_TRIES = 20000, GRID_CHECKED = 1500, GRID_OF = 12 };

/* Of the first GRID_OF plans found with this pair the one that covers most new ones.  False: none was found. */
static bool grid_best(enum grid_axis a, int i, enum grid_axis b, int j, grid_pairs covered, struct grid_choice *best)
{
    int most = 0, found = 0, checked = 0;
    struct plan p;
    char why[512] = "no such mesh, or a form of what the mesh does not have";

    for (int try = 0; try < GRID_TRIES && checked < GRID_CHECKED && found < GRID_OF; try++) {
        struct grid_choice c;
        memset(&c, -1, sizeof c);
        c.at[a] = i, c.at[b] = j;
        grid_complete(&c);
        if (!grid_exists(&c))
            continue;
        checked++;
        if (!grid_plan(&c, &p, why, sizeof why))
            continue;
        found++;
        int n = grid_uncovered(&c, covered);
        if (n > most)
            most = n, *best = c;
    }
    if (!found)
        grid_refused(why);
    return found > 0;
}

typedef void grid_take(const struct grid_choice *c, const struct plan *p);

static void grid_mark(const struct grid_choice *c, grid_pairs covered)
{
    for (int a = 0; a < GRID_AXES; a++)
        for (int b = a + 1; b < GRID_AXES; b++)
            covered[a][b][c->at[a]][c->at[b]] = true;
}

/* Pairs that no plan has. */
static int64_t grid_cover(grid_take *take)
{
    static grid_pairs covered;
    struct grid_choice best;
    struct plan p;
    char why[512];
    int64_t none = 0;

    for (enum grid_axis a = 0; a < GRID_AXES; a++)
        for (enum grid_axis b = a + 1; b < GRID_AXES; b++)
            for (int i = 0; i < grid_size[a]; i++)
                for (int j = 0; j < grid_size[b]; j++) {
                    if (covered[a][b][i][j])
                        continue;
                    if (!grid_best(a, i, b, j, covered, &best)) {
                        none++;
                        continue;
                    }
                    grid_mark(&best, covered);
                    grid_plan(&best, &p, why, sizeof why);
                    take(&best, &p);
                }
    return none;
}

/* ---- fewer of more ranks ---- */

enum { GRID_FEW_RANKS = 4, GRID_FEW = 12, GRID_LISTED = 1024 };
static struct grid_choice grid_listed[GRID_LISTED];
static int grid_nlisted;

static void grid_keep(const struct grid_choice *c, const struct plan *p)
{
    (void)p;
    if (grid_nlisted < GRID_LISTED)
        grid_listed[grid_nlisted++] = *c;
}

/* The covering set's plans of up to GRID_FEW_RANKS ranks, and those GRID_FEW of the others, which take longest on few cores, that bring
 * most new pairs.  Pairs that no plan has. */
static int64_t grid_cover_few(grid_take *take)
{
    static grid_pairs covered;
    struct plan p;
    char why[512];
    int64_t none = grid_cover(grid_keep);
    bool taken[GRID_LISTED] = { false };
    int n = 0;

    for (int i = 0; i < grid_nlisted; i++)
        if (grid_degree(&grid_listed[i], GRID_WORLD) <= GRID_FEW_RANKS)
            grid_mark(&grid_listed[i], covered), taken[i] = true;
    for (int best = 0; best >= 0 && n < GRID_FEW; n += best >= 0) {
        int most = 0;
        best = -1;
        for (int i = 0; i < grid_nlisted; i++)
            if (!taken[i] && grid_uncovered(&grid_listed[i], covered) > most)
                most = grid_uncovered(&grid_listed[i], covered), best = i;
        if (best >= 0)
            grid_mark(&grid_listed[best], covered), taken[best] = true;
    }
    for (int i = 0; i < grid_nlisted; i++)
        if (taken[i] && grid_plan(&grid_listed[i], &p, why, sizeof why))
            take(&grid_listed[i], &p);
    return none;
}

/* ---- the whole ---- */

/* Every mesh with every form, schedule and cell, of one model (-1: of each), in fp32, each with the least micro-steps from 2 on
 * that its schedule takes. */
static int64_t grid_whole(int model, grid_take *take)
{
    struct grid_choice c = { .at = { [GRID_MODEL] = model < 0 ? 0 : model } };
    int64_t none = 0;
    struct plan p;
    char why[512];
    enum grid_axis a;

    do {
        bool good = false, exists = false;
        for (int k = 1; k < GRID_ACCUMULATIONS && !good; k++) {
            c.at[GRID_ACCUMULATION] = k;
            exists |= grid_exists(&c);
            good = grid_exists(&c) && grid_plan(&c, &p, why, sizeof why);
        }
        if (good)
            take(&c, &p);
        else if (exists)
            none++, grid_refused(why);
        for (a = model < 0 ? GRID_MODEL + 1 : GRID_MODEL; a-- > 0; c.at[a] = 0)
            if (++c.at[a] < grid_size[a])
                break;
    } while ((int)a >= 0);
    return none;
}

#endif
