/* comm_hook.c -- see comm_hook.h. */
#include "model/plan/comm_hook.h"

#include <assert.h>

#define ROW(name, said_as, ...) [HOOK_##name] = { .word = said_as, __VA_ARGS__ },
static const struct comm_hook_row rows[NCOMM_HOOK] = { COMM_HOOKS(ROW) };
#undef ROW

const struct comm_hook_row *comm_hook(enum comm_hook h)
{
    assert(h < NCOMM_HOOK);
    return &rows[h];
}
