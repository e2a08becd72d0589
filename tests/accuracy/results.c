/* results.c -- see results.h. */
#include "tests/accuracy/results.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct result *results_add(struct results *all, const char *kind)
{
    assert(all->n < RESULTS_MOST);
    struct result *r = &all->row[all->n++];
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    return r;
}

static bool is_of(const struct result *r, const char *kind) { return !kind || !strcmp(r->kind, kind); }

/* Of the editions of row i's plan the mean. */
static double published(const struct results *all, int i)
{
    double sum = 0;
    int n = 0;

    for (int j = 0; j < all->n; j++)
        if (all->row[j].problem == all->row[i].problem && all->row[j].predicted_s == all->row[i].predicted_s) {
            sum += all->row[j].published_s;
            n++;
        }
    return sum / n;
}

struct results_choice results_choose(const struct results *all, const char *kind)
{
    struct results_choice c = { 0 };

    for (int problem = 1; problem <= all->problems; problem++) {
        double chosen = INFINITY, of_chosen = 0, best = INFINITY, first = 0;
        bool several = false;
        for (int i = 0; i < all->n; i++) {
            const struct result *r = &all->row[i];
            if (r->problem != problem || !is_of(r, kind) || !(r->predicted_s > 0))
                continue;
            several |= first > 0 && r->predicted_s != first;
            first = r->predicted_s;
            best = fmin(best, published(all, i));
            of_chosen = r->predicted_s < chosen ? published(all, i) : of_chosen;
            chosen = fmin(chosen, r->predicted_s);
        }
        if (!several)
            continue;
        double regret = of_chosen / best - 1;
        c.problems++;
        c.best += regret <= 0;
        c.regret += regret;
        c.worst = fmax(c.worst, regret);
    }
    c.regret = c.problems ? c.regret / c.problems : 0;
    return c;
}

static bool seen(const struct results *all, int i)
{
    for (int j = 0; j < i; j++)
        if (!strcmp(all->row[j].kind, all->row[i].kind))
            return true;
    return false;
}

static void print_kind(const struct results *all, const char *kind)
{
    int rows = 0, none = 0, refused = 0, inside = 0, guesses = 0;
    double sum = 0, bias = 0, worst = 0, width = 0, guess = 0;

    for (int i = 0; i < all->n; i++) {
        const struct result *r = &all->row[i];
        if (!is_of(r, kind))
            continue;
        rows++;
        none += !(r->predicted_s > 0);
        if (!(r->predicted_s > 0))
            continue;
        double e = r->predicted_s / r->published_s - 1;
        refused += r->refused;
        inside += r->published_s >= r->low_s && r->published_s <= r->high_s;
        width += (r->high_s - r->low_s) / r->predicted_s;
        sum += fabs(e);
        bias += e;
        worst = fabs(e) > fabs(worst) ? e : worst;
        guesses += r->guess_s > 0;
        guess += r->guess_s > 0 ? fabs(r->guess_s / r->published_s - 1) : 0;
    }
    int n = rows - none;
    printf("  %-48s %4d %8d %7d", kind ? kind : "together", rows, none, refused);
    if (n)
        printf(" %6.1f %+6.1f %+6.1f %7.0f %6.0f", 100 * sum / n, 100 * bias / n, 100 * worst, 100.0 * inside / n, 100 * width / n);
    if (guesses)
        printf(" %8.1f", 100 * guess / guesses);
    printf("\n");
}

static void print_reasons(const struct results *all)
{
    for (int i = 0; i < all->n; i++) {
        bool first = all->row[i].why[0];
        int n = 0;
        for (int j = 0; j < all->n && first; j++) {
            bool same = !strcmp(all->row[j].why, all->row[i].why);
            first = !same || j >= i;
            n += same;
        }
        if (first)
            printf("  no plan: %3d rows, %s\n", n, all->row[i].why);
    }
}

static void print_choice(const char *what, const struct results_choice *c)
{
    if (c->problems)
        printf("  %-48s %8d %8d %8.1f %8.1f\n", what, c->problems, c->best, 100 * c->regret, 100 * c->worst);
}

void results_print(const struct results *all)
{
    printf("  %-48s %4s %8s %7s %6s %6s %6s %7s %6s %8s\n", "step time, errors in %", "rows", "no plan", "refused", "mean", "bias", "worst", "inside",
           "width", "one MFU");
    for (int i = 0; i < all->n; i++)
        if (!seen(all, i))
            print_kind(all, all->row[i].kind);
    print_kind(all, NULL);
    print_reasons(all);
    printf("\n  %-48s %8s %8s %8s %8s\n", "several plans for the same work", "problems", "the best", "regret %", "worst %");
    for (int i = 0; i < all->n; i++)
        if (!seen(all, i)) {
            struct results_choice c = results_choose(all, all->row[i].kind);
            print_choice(all->row[i].kind, &c);
        }
    struct results_choice c = results_choose(all, NULL);
    print_choice("together", &c);
}
