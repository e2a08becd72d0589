/* phases_iteration.c -- seconds of an iteration, as predicted, and in draws of what is not known. */
#include "sim/plan/phases.h"

#include <math.h>
#include <string.h>

struct cost phases_sum_of(const struct cost *a, const struct cost *b)
{
    return (struct cost){ .s = a->s + b->s, .low_s = a->low_s + b->low_s, .high_s = a->high_s + b->high_s, .basis = basis_worst(a->basis, b->basis) };
}

static struct cost longer_of(const struct cost *a, const struct cost *b)
{
    return (struct cost){ .s = fmax(a->s, b->s), .low_s = fmax(a->low_s, b->low_s), .high_s = fmax(a->high_s, b->high_s), .basis = basis_worst(a->basis, b->basis) };
}

static bool is_meanwhile(const struct phases *p, int k) { return p->plan.asynchronous && p->plan.step[k].does == DOES_GENERATE; }

/* Of the engine's side, apart: it writes nothing while weights are loaded, whatever goes on after it (vLLM's core does one thing at a time, v1/engine/core.py:
 * run_busy_loop(); NeMo-RL's in_flight_weight_updates by collective_rpc()). */
static bool is_of_engine(const struct phases *p, int k)
{
    return is_meanwhile(p, k) || (p->plan.asynchronous && p->plan.step[k].does == DOES_HAND_OVER);
}

/* Phases that begin together, from *k on: those on the same GPUs take turns, and the longest of the places decides. */
static struct cost together_from(const struct phases *p, const struct cost time[], int *k)
{
    struct cost at[PHASE_PLACES + 1], all = { .s = 0 };

    memset(at, 0, sizeof at);
    do {
        struct cost *to = &at[phase_place(&p->plan, &p->plan.step[*k])];
        if (!is_meanwhile(p, *k))
            *to = phases_sum_of(to, &time[*k]);
    } while (++*k < p->plan.nsteps && p->plan.step[*k].with_before);
    for (int i = 0; i <= PHASE_PLACES; i++)
        all = longer_of(&all, &at[i]);
    return all;
}

/* Phases err alike: their intervals add.  Apart and asynchronous, the longer side decides; *shorter: the other one. */
static struct cost all_of(const struct phases *p, const struct cost time[], double *shorter)
{
    struct cost side[2];

    memset(side, 0, sizeof side);
    for (int k = 0; k < p->plan.nsteps; k++)
        side[1] = is_of_engine(p, k) ? phases_sum_of(&side[1], &time[k]) : side[1];
    for (int k = 0; k < p->plan.nsteps;) {
        struct cost some = together_from(p, time, &k);
        side[0] = phases_sum_of(&side[0], &some);
    }
    *shorter = fmin(side[0].s, side[1].s);
    return longer_of(&side[0], &side[1]);
}

/* ---- draws ----
 *
 * Sources of error: how fast an engine writes, how weights are handed over on the same GPUs and how apart, how long products, experts and collectives of
 * updates and forwards take, and what moves to host memory and back.  They are independent of each other, and within each all phases err alike.  A source's
 * place is normal, its 90 % interval a phase's.  Draws are a lattice of Korobov's: the n-th has source i at the (n a^i mod draws)-th of as many even
 * strata, so that each source visits each stratum once.  Of this prime number of draws a = 154 spreads any two of five sources best (the shortest vector
 * of the dual lattice has length 20). */

enum { SPREAD = 154 };

enum source { OF_GENERATION, OF_HAND_OVER, OF_HAND_OVER_APART, OF_TRAINING, OF_MOVES, SOURCES };

static enum source source_of(const struct phases *p, int k)
{
    const struct phase_step *s = &p->plan.step[k];

    if (s->does == DOES_GENERATE)
        return OF_GENERATION;
    if (s->does == DOES_HAND_OVER)
        return role_is_apart(&p->plan.role[s->to]) || p->plan.role[s->role].place != p->plan.role[s->to].place ? OF_HAND_OVER_APART : OF_HAND_OVER;
    return OF_TRAINING;
}

/* Where a fraction of all draws lies: in half widths of a 90 % interval, 0.5 at 0, 0.05 at -1 and 0.95 at 1. */
static double place_of(double fraction)
{
    const double end = 1.6448536269514722;  /* of the normal distribution */
    double low = -4, high = 4;

    for (int i = 0; i < 40; i++) {
        double at = (low + high) / 2;
        if (erfc(-at * end / sqrt(2)) / 2 < fraction)
            low = at;
        else
            high = at;
    }
    return (low + high) / 2;
}

/* Ends are so many times the middle, so that nothing takes less than no time. */
static double at_place(double s, double low, double high, double place)
{
    double end = place < 0 ? low : high;

    return !(s > 0) || !(end > 0) ? s : s * pow(end / s, fabs(place));
}

static double in_draw(const struct phases *p, const double place[SOURCES])
{
    struct cost time[PHASE_STEPS];
    double shorter;

    for (int k = 0; k < p->plan.nsteps; k++) {
        const struct cost *all = &p->time[k], *moved = &p->moves[k];
        double own = at_place(all->s - moved->s, all->low_s - moved->low_s, all->high_s - moved->high_s, place[source_of(p, k)]);
        time[k] = (struct cost){ .s = own + at_place(moved->s, moved->low_s, moved->high_s, place[OF_MOVES]) };
    }
    return all_of(p, time, &shorter).s;
}

void phases_iterate(struct phases *p)
{
    double of_stratum[PHASE_DRAWS], place[SOURCES];

    p->iteration = all_of(p, p->time, &p->apart_s);
    for (int i = 0; i < PHASE_DRAWS; i++)
        of_stratum[i] = place_of((i + 0.5) / PHASE_DRAWS);
    for (int draw = 0; draw < PHASE_DRAWS; draw++) {
        for (int i = 0, stratum = draw; i < SOURCES; i++, stratum = stratum * SPREAD % PHASE_DRAWS)
            place[i] = of_stratum[stratum];
        p->draw[draw] = in_draw(p, place);
    }
}
