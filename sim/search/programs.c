/* programs.c -- see programs.h. */
#include "sim/search/programs.h"

#include <stdlib.h>

#include "base/room.h"

int programs_of(struct programs *all, const struct plan *p, int first)
{
    int last = all->n - 1;

    for (int i = last; i >= 0 && (i == last || i >= first); i--)
        if (program_is_shared(&all->of[i].plan, p))
            return i;
    if (last >= 0 && !all->of[last].used) {
        program_free(&all->of[last].program);
        all->n--;
    }
    all->of = room_for(all->of, all->n, &all->room, sizeof *all->of);
    all->of[all->n] = (struct shared_program){ .plan = *p };
    return program_build(p, &all->of[all->n].program) < 0 ? -1 : all->n++;
}

void programs_free(struct programs *all)
{
    for (int i = 0; i < all->n; i++)
        program_free(&all->of[i].program);
    free(all->of);
    *all = (struct programs){ 0 };
}
