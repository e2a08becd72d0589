/* program_store.c -- see program_store.h. */
#include "sim/search/program_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/room.h"

/* So many are kept, or as many as are held. */
enum { KEPT = 32 };

uint64_t program_store_key(const struct program_inputs *inputs)
{
    uint64_t h = HASH_BEGIN, word;

    for (size_t at = 0; at + sizeof word <= sizeof *inputs; at += sizeof word) {
        memcpy(&word, (const char *)inputs + at, sizeof word);
        h = hash_mix(h, word);
    }
    return h;
}

/* ---- with the lock ---- */

static void cut(struct program_store *all, int i)
{
    memmove(&all->of[i], &all->of[i + 1], (size_t)(--all->n - i) * sizeof *all->of);
}

static void tidy(struct program_store *all)
{
    for (int i = 0; i < all->n && all->n >= KEPT; i++)
        if (all->of[i]->held == 0) {
            struct stored_program *old = all->of[i];
            cut(all, i--);
            program_free(&old->program);
            free(old);
        }
}

static struct stored_program *find(struct program_store *all, uint64_t key, const struct program_inputs *inputs)
{
    for (int i = all->n - 1; i >= 0; i--) {
        struct stored_program *s = all->of[i];
        if (s->key != key || memcmp(&s->inputs, inputs, sizeof *inputs))
            continue;
        cut(all, i);
        return all->of[all->n++] = s;
    }
    return NULL;
}

static struct stored_program *add(struct program_store *all, uint64_t key, const struct program_inputs *inputs)
{
    struct stored_program *s = room_new(1, sizeof *s);

    tidy(all);
    s->key = key;
    s->inputs = *inputs;
    all->of = room_for(all->of, all->n, &all->room, sizeof *all->of);
    return all->of[all->n++] = s;
}

/* It could not be built. */
static void drop(struct program_store *all, struct stored_program *s)
{
    int i = 0;

    while (all->of[i] != s)
        i++;
    cut(all, i);
    free(s);
}

/* ---- */

/* Builds it, while others may look for theirs. */
static struct stored_program *build(struct program_store *all, struct stored_program *s, const struct plan *p)
{
    pthread_mutex_unlock(&all->lock);
    int rc = program_build(p, &s->program);
    pthread_mutex_lock(&all->lock);
    if (rc < 0) {
        drop(all, s);
        s = NULL;
    } else
        s->built = true;
    pthread_cond_broadcast(&all->change);
    return s;
}

struct stored_program *program_store_hold(struct program_store *all, const struct plan *p)
{
    struct program_inputs inputs;
    struct stored_program *s;

    program_inputs(p, &inputs);
    uint64_t key = program_store_key(&inputs);
    pthread_mutex_lock(&all->lock);
    while ((s = find(all, key, &inputs)) && !s->built)
        pthread_cond_wait(&all->change, &all->lock);
    if (s)
        s->held++;
    else {
        s = add(all, key, &inputs);
        s->held = 1;
        s = build(all, s, p);
    }
    pthread_mutex_unlock(&all->lock);
    return s;
}

void program_store_release(struct program_store *all, struct stored_program *s)
{
    pthread_mutex_lock(&all->lock);
    s->held--;
    pthread_mutex_unlock(&all->lock);
}

void program_store_free(struct program_store *all)
{
    for (int i = 0; i < all->n; i++) {
        program_free(&all->of[i]->program);
        free(all->of[i]);
    }
    free(all->of);
    pthread_cond_destroy(&all->change);
    pthread_mutex_destroy(&all->lock);
}
