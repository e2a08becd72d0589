/* programs.c -- see programs.h. */
#include "sim/search/programs.h"

#include <stdlib.h>
#include <string.h>

#include "base/room.h"
#include "sim/search/program_store.h"

/* Programs that no candidate uses: so many are kept for the next one with the same inputs. */
enum { IDLE = 128 };

struct built {
    uint64_t key;                   /* hash of the inputs */
    struct program_inputs inputs;
    struct program program;
    int users;                      /* numbers that stand for it */
};

static void drop(struct programs *all, int i)
{
    program_free(&all->built[i]->program);
    free(all->built[i]);
    memmove(&all->built[i], &all->built[i + 1], (size_t)(--all->nbuilt - i) * sizeof *all->built);
}

/* Drops the oldest that no candidate uses, where there are too many. */
static void tidy(struct programs *all)
{
    int idle = 0, oldest = -1;

    for (int i = all->nbuilt - 1; i >= 0; i--)
        if (all->built[i]->users == 0) {
            idle++;
            oldest = i;
        }
    if (idle > IDLE)
        drop(all, oldest);
}

/* NULL: reported. */
static struct built *built_for(struct programs *all, const struct plan *p)
{
    struct program_inputs inputs;

    program_inputs(p, &inputs);
    uint64_t key = program_store_key(&inputs);
    for (int i = all->nbuilt - 1; i >= 0; i--)
        if (all->built[i]->key == key && !memcmp(&all->built[i]->inputs, &inputs, sizeof inputs))
            return all->built[i];
    tidy(all);
    struct built *b = room_new(1, sizeof *b);
    b->key = key;
    b->inputs = inputs;
    if (program_build(p, &b->program) < 0) {
        free(b);
        return NULL;
    }
    all->built = room_for(all->built, all->nbuilt, &all->built_room, sizeof *all->built);
    return all->built[all->nbuilt++] = b;
}

int programs_of(struct programs *all, const struct plan *p, int first)
{
    int last = all->n - 1;

    for (int i = last; i >= 0 && (i == last || i >= first); i--)
        if (all->of[i].plan.strategy == p->strategy && program_is_shared(&all->of[i].plan, p))
            return i;
    if (last >= 0 && !all->of[last].used) {
        all->of[last].built->users--;
        all->n--;
    }
    struct built *b = built_for(all, p);
    if (!b)
        return -1;
    b->users++;
    all->of = room_for(all->of, all->n, &all->room, sizeof *all->of);
    all->of[all->n] = (struct shared_program){ .plan = *p, .built = b, .program = &b->program };
    return all->n++;
}

void programs_free(struct programs *all)
{
    while (all->nbuilt > 0)
        drop(all, all->nbuilt - 1);
    free(all->built);
    free(all->of);
    *all = (struct programs){ 0 };
}
