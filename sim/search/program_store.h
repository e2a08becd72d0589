/* program_store.h -- programs by what they are built from, for several threads at once.
 *
 *     struct program_store all = PROGRAM_STORE;
 *     struct stored_program *s = program_store_hold(&all, &plan);
 *     ... s->program ...
 *     program_store_release(&all, s);
 *     program_store_free(&all);
 *
 * Where many candidates are bounded and few are looked at: of those that nobody holds the last few are kept, others are built again. */
#ifndef DPX_PROGRAM_STORE_H
#define DPX_PROGRAM_STORE_H

#include <pthread.h>

#include "model/program/program.h"

struct stored_program {
    uint64_t key;                   /* hash of the inputs */
    struct program_inputs inputs;
    struct program program;
    int  held;
    bool built;                     /* false: the thread that asked first builds it */
};

struct program_store {
    pthread_mutex_t lock;
    pthread_cond_t  change;
    struct stored_program **of;     /* the one that was asked for last comes last */
    int n; int64_t room;
};
#define PROGRAM_STORE { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER }

/* The plan's; NULL reported. */
struct stored_program *program_store_hold(struct program_store *all, const struct plan *p);
void program_store_release(struct program_store *all, struct stored_program *s);
/* All were released. */
void program_store_free(struct program_store *all);

/* A hash of inputs. */
uint64_t program_store_key(const struct program_inputs *inputs);

#endif
