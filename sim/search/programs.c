/* programs.c -- see programs.h. */
#include "sim/search/programs.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"

/* Programs that no candidate uses: so many are kept for the next one with the same inputs. */
enum { IDLE = 128 };

struct built {
    uint64_t key;                   /* hash of the inputs */
    struct program_inputs inputs;
    struct program program;
    int users;                      /* numbers that stand for it */
};

static uint64_t key_of(const struct program_inputs *inputs)
{
    uint64_t h = HASH_BEGIN, word;

    for (size_t at = 0; at + sizeof word <= sizeof *inputs; at += sizeof word) {
        memcpy(&word, (const char *)inputs + at, sizeof word);
        h = hash_mix(h, word);
    }
    return h;
}

static void drop(struct programs *all, int i)
{
    program_free(&all->built[i]->program);
    free(all->built[i]);
    memmove(&all->built[i], &all->built[i + 1], (size_t)(--all->nbuilt - i) * sizeof *all->built);
}

/* The numbers that stand for it have none. */
static void forget(struct programs *all, const struct built *b)
{
    for (int i = 0; i < all->n; i++)
        if (all->of[i].built == b) {
            all->of[i].built = NULL;
            all->of[i].program = NULL;
        }
}

/* Drops the oldest, or where all that candidates use are kept the oldest that none does, where there are too many. */
static void tidy(struct programs *all)
{
    int idle = 0, oldest = -1;

    if (all->lean) {
        if (all->nbuilt >= PROGRAMS_LEAN) {
            forget(all, all->built[0]);
            drop(all, 0);
        }
        return;
    }
    for (int i = all->nbuilt - 1; i >= 0; i--)
        if (all->built[i]->users == 0) {
            idle++;
            oldest = i;
        }
    if (idle > IDLE)
        drop(all, oldest);
}

/* Number i is the last one that was asked for. */
static struct built *again(struct programs *all, int i)
{
    struct built *b = all->built[i];

    memmove(&all->built[i], &all->built[i + 1], (size_t)(all->nbuilt - 1 - i) * sizeof *all->built);
    return all->built[all->nbuilt - 1] = b;
}

/* NULL: reported. */
static struct built *built_for(struct programs *all, const struct plan *p)
{
    struct program_inputs inputs;

    program_inputs(p, &inputs);
    uint64_t key = key_of(&inputs);
    for (int i = all->nbuilt - 1; i >= 0; i--)
        if (all->built[i]->key == key && !memcmp(&all->built[i]->inputs, &inputs, sizeof inputs))
            return all->lean ? again(all, i) : all->built[i];
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

int programs_need(struct programs *all, int i)
{
    struct built *b = built_for(all, &all->of[i].plan);

    if (!b)
        return -1;
    all->of[i].built = b;
    all->of[i].program = &b->program;
    return 0;
}

/* The number itself, whose program is there; -1 reported. */
static int with_program(struct programs *all, int i)
{
    return all->of[i].program || programs_need(all, i) == 0 ? i : -1;
}

int programs_of(struct programs *all, const struct plan *p, int first)
{
    int last = all->n - 1;

    for (int i = last; i >= 0 && (i == last || i >= first); i--)
        if (all->of[i].plan.strategy == p->strategy && program_is_shared(&all->of[i].plan, p))
            return with_program(all, i);
    if (last >= 0 && !all->of[last].used) {
        if (all->of[last].built)
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
