/* phases_picture.c -- memory of a GPU by phase, a bar each. */
#include <math.h>
#include <string.h>

#include "base/page.h"
#include "base/size.h"
#include "base/terminal.h"
#include "sim/plan/phases.h"

enum { PARTS = 4, LEAST = 20 };

static const char *const blocks[PARTS + 1] = { "█", "▓", "░", "·", "┊" }, *const ascii[PARTS + 1] = { "#", "=", "+", ".", ":" };

/* Up to where each part goes, the last of them what is reserved beside what is needed. */
static void bar(const struct moment *m, int64_t usable, double unit, int room, FILE *to)
{
    const char *const *with = terminal_utf8() ? blocks : ascii;
    int64_t ends[PARTS] = { m->live, m->live + m->engine, m->needed, m->taken > m->needed ? m->taken : m->needed };
    int mark = (int)lround((double)usable / unit);

    for (int c = 0, part = 0; c < room; c++) {
        while (part < PARTS && (double)ends[part] < (c + 0.5) * unit)
            part++;
        fputs(part < PARTS ? with[part] : c == mark ? with[PARTS] : c < mark ? " " : "", to);
    }
    fputc('\n', to);
}

static int columns(const char *name) { return page_columns(name, strlen(name)); }

/* All bars have one scale: the card, or the longest of them. */
static void place(const struct phases *p, int i, const struct moment *of, int64_t usable, int64_t limit, int width, FILE *to)
{
    int names = 0;
    int64_t most = limit;

    for (int k = 0; k < p->plan.nsteps; k++) {
        int n = columns(p->plan.step[k].name);
        names = n > names ? n : names;
        most = of[k].taken > most ? of[k].taken : most;
    }
    int room = width - names - 4 > LEAST ? width - names - 4 : LEAST;
    for (int k = 0; k < p->plan.nsteps; k++) {
        int at = phase_place(&p->plan, &p->plan.step[k]);
        if (at != i && !(i == 0 && at == PHASE_PLACES))
            continue;
        fprintf(to, "  %s%*s ", p->plan.step[k].name, names - columns(p->plan.step[k].name), "");
        bar(&of[k], usable, (double)most / room, room, to);
    }
}

void phases_picture(const struct phases *p, int width, FILE *to)
{
    const char *const *with = terminal_utf8() ? blocks : ascii;

    fprintf(to, "\nMemory of a GPU by phase: %s trainers, %s engine, %s beside them, %s reserved on top; %s where the usable %s end.\n", with[0], with[1], with[2], with[3],
            with[4], size_text(p->available).s);
    place(p, 0, p->moment, p->available, p->limit, width, to);
    for (int i = 1; i < p->plan.nplaces; i++) {
        fprintf(to, "  %s:\n", p->plan.place[i].name);
        place(p, i, p->more[i].moment, p->more[i].available, p->more[i].limit, width, to);
    }
}
