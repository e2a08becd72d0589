/* clock_internal.h -- what the files of the clock share (clock*.c). */
#ifndef DPX_CLOCK_INTERNAL_H
#define DPX_CLOCK_INTERNAL_H

#include "sim/clock/clock.h"

/* Depth of repeats; states of one repeat that are compared; items of a role before finished ones are dropped. */
enum { DEPTH = 8, SNAPS = 4, ITEMS = 1 << 16, LEAST_ITEMS = 1 << 11 };

/* ARRIVED: it could start, but another role has not come yet. */
enum item_state { WAITING, ARRIVED, RUNNING, DONE };

/* One entry, unrolled. */
struct item {
    int     op;
    int64_t iteration;
    double  left, since, slow;      /* seconds of undisturbed work that remained then; how much longer they take.  Of a meet:
                                     * when it arrived */
    double  issued, start, end;     /* end: while it runs, when it will if nothing changes */
    int     next;                   /* on its stream, in issue order; -1 */
    int     dep0;                   /* its dependencies: deps[dep0 .. dep0+ndeps) */
    uint8_t ndeps, stream, state;
    int     cause;                  /* the item that its start waited for last; -1: its own issue */
    double  late_from, late_to;     /* the last time that it, or what its start waited for, waited for the issuing thread, which from then
                                     * on waited for nothing */
    int     coll;                   /* op * PLAN_GROUPS + group of the collective that the start waited for, -1 */
    int     blocked_by;             /* a dependency that was not done at the last test, -1 */
    int     issue_cause;            /* the item that the issuing thread waited for before it, -1 */
    int     meet;                   /* index of the meet that it is part of; -1 */
    double  beside;                 /* seconds so far in which others slowed it down; of a meet it has its own */
    bool    linked;                 /* among these a collective that shares its link */
};

/* A repeat of a schedule. */
struct loop {
    int      open;
    unsigned streams;               /* that its body uses, one bit each */
    bool     closed;                /* nothing after it can start before its streams are through */
};
/* All of a schedule's, in order. */
struct clock_loops { const struct schedules *s; int end; struct loop *of; int n; };

/* How far a role has come in its lanes: the issuing thread, kernels on the compute stream, the last entry done of each stream; for how long
 * collectives have shared a link. */
struct lanes_now { struct lane issued, worked, last[NSTREAM], shared; };

/* What a role holds at `until`; `unsettled`: bytes that entries which are done will still add or take.  `most`: the most that it held since the state
 * of that level before this one, until a later state is recorded; from then on the most since this one. */
struct held_now { int64_t live, most, unsettled; double until; };

struct actor_lanes {
    struct lanes    *of;
    unsigned         others[LANE_PARTS];        /* lanes of a part that go by another price than the first, a bit each */
    struct lanes_now now;
    struct lane     *items; int64_t room;       /* of each item when it was issued; once it is done, when it ended */
    struct lane      sum[2], begun[NSTREAM];    /* work so far: of kernels on the compute stream, of what runs beside it; the last entry's start */
    double           sum_s[2], took_s[2], beside_s[2];     /* the same as predicted; their time on the clock; of it slowed down */
    int              last_op[NSTREAM];          /* 0: none yet, else its index in ops[] and 1 */
};

/* Items since some moment: the first, and the sum of the hashes of those that are counted already, which may be dropped by now. */
struct since { int first; uint64_t counted; };

struct actor {
    const struct role *role;
    const struct schedules *s;
    const struct durations *d;
    struct timeline *out;
    int index;
    bool whole;                     /* all items are to be kept */
    struct item *items; int n, most; int64_t room;      /* most: before some are dropped */
    int *deps; int ndeps; int64_t deps_room;
    /* unrolling: the last item of each kind so far, and where it goes on */
    int last_on[NSTREAM], last_in[PLAN_GROUPS], *recorded;
    const struct clock_loops *loops; struct clock_loops *own_loops;     /* own: to be freed */
    int pc, end, depth;
    struct { int open, loop; int64_t i, n; } at[DEPTH];
    struct since entered[DEPTH], seen[DEPTH];       /* since it entered a repeat; since the last state of that level was recorded */
    int counted;                    /* items before it are counted in these */
    unsigned want;                  /* streams that must have a head */
    int passed;                     /* level of the outermost repeat that began another iteration, -1 */
    int blocked;                    /* the item for which the issuing thread waits, -1 */
    double issue_at;                /* when the issuing thread has issued all that was unrolled */
    int issue_cause;                /* the item that blocked it last, until charged; -1 */
    int64_t wins;                   /* starts that it decided */
    bool computes;                  /* as cores were last shared out, */
    double asked, beside;           /* and what was asked for then of its own, and on other cores (crowd.h) */
    /* running */
    int head[NSTREAM];              /* first item of each stream that is not done, -1 */
    unsigned pending;               /* streams that have a head */
    uint8_t used[NSTREAM]; int nused;
    uint8_t place[NSTREAM];         /* of each stream in used[] */
    unsigned waiting, begun;        /* by place, a bit each: streams whose head waits; whose head arrived or runs */
    double compute_end;
    struct actor_lanes *lanes;      /* NULL: none are asked for */
    struct actor_held *held;        /* the same */
    int instance[PLAN_GROUPS];      /* the channel of a group's collectives, -1: no other role has a part; -2: not asked yet */
};

/* One communication of several roles: a message or a collective. */
struct member { int actor, item; double slow; };
struct meet {
    int channel, nmembers, arrived;
    int64_t seq;
    double left, since, slow, end, beside;      /* as an item's */
    struct member *who;             /* by place in the channel; item -1: not unrolled yet */
    int next;                       /* of its channel, or of the free ones */
    int at;                         /* of the active ones, once it runs */
};

/* Communications that match in order: messages of a pair with one tag, collectives of one instance. */
struct channel {
    bool message;
    int64_t from, to;               /* ranks; a collective: its group, and the instance's first rank */
    int32_t tag;
    int nmembers, next;             /* next: of the same hash */
    int open, last;                 /* meets that are not done, by number: those that are done next are the first; -1 */
    int64_t made;                   /* meets so far: each has the next number */
    int *actors;                    /* of the members */
    int64_t *pulled;                /* entries of each that were unrolled */
};

struct state;                       /* clock_skip.c */

/* Of all actors, a bit each. */
struct bits { uint64_t *word; };

struct clock {
    struct actor *actors; int n;
    double *least; int leaves;      /* of 2 * leaves: the next event of actor i is least[leaves + i], INFINITY: none; of the two numbers
                                     * 2 i and 2 i + 1, number i has the least */
    struct bits dirty, touched;     /* something ended since it was settled; something changes for it at this event */
    int words;                      /* of either */
    double t;
    struct meet *meets; int nmeets, free_meet; int64_t room_meets;
    int *active, nactive; int64_t room_active;          /* meets that run */
    double *ends; int64_t room_ends;                    /* of each of these the end: they are looked through at every event */
    struct channel *channels; int nchannels; int64_t room_channels;
    int buckets[256];
    int64_t *ranks;                 /* of the roles */
    int lead, silent;               /* whose iterations are watched; how many others' since its last */
    struct state *states;
    int waited;                     /* states that came back and were not jumped from (struct role: waits) */
    bool failed;
    char *why; size_t why_size;
};

static inline void bits_set(struct bits b, int i)   { b.word[i / 64] |= UINT64_C(1) << i % 64; }
static inline void bits_clear(struct bits b, int i) { b.word[i / 64] &= ~(UINT64_C(1) << i % 64); }
static inline bool bits_has(struct bits b, int i)   { return b.word[i / 64] >> i % 64 & 1; }

/* ---- clock_pull.c ---- */
/* Entries of [from, to), repeats unrolled. */
double clock_entries(const struct schedules *s, int from, int to);
void clock_pull_open(struct actor *a, const struct role *r, int nroles, enum sched_id id);
void clock_pull_close(struct actor *a);
/* Unrolls the next entry; false at the end.  The item, or the issuing thread's wait, is items[n-1]. */
bool clock_pull_next(struct clock *k, struct actor *a);
/* Drops items and dependencies that no item refers to any more. */
void clock_pull_forget(struct clock *k, struct actor *a);

/* ---- clock_meet.c ---- */
/* Joins a new item to the meet of its channel, if another role takes part in its op. */
void clock_meet_join(struct clock *k, struct actor *a, int item);
void clock_meet_free(struct clock *k, int meet);
void clock_meet_deadlock(struct clock *k);
void clock_meet_close(struct clock *k);

/* ---- clock_lanes.c ---- */
/* All but open and close: of a role that has lanes. */
void clock_lanes_open(struct actor *a, struct lanes *of);
void clock_lanes_close(struct actor *a);
/* A new item is issued; the issuing thread's wait is over; an item, a meet, is done in `s` seconds, in `beside` of which it was slowed down. */
void clock_lanes_issue(struct actor *a, int item);
void clock_lanes_wait(struct actor *a, int item);
void clock_lanes_end(struct actor *a, int item, double s, double beside);
void clock_lanes_meet(struct clock *k, const struct meet *m, double s, double beside);
/* Item runs from now on beside the entries ops[0..n), itself among them. */
void clock_lanes_beside(struct actor *a, struct item *it, const int *ops, int n);
/* The clock jumps so many times over what was done since `then`, when `oldest` was the first item under way, `before` on the clock. */
void clock_lanes_jump(struct actor *a, const struct lanes_now *then, int oldest, double before, double times);

/* ---- clock_held.c ---- */
/* Relative difference of two equal times that rounding may cause. */
#define CLOCK_SAME 1e-12
void clock_held_open(struct actor *a);
/* Into a->out, of a role whose entries are all done. */
void clock_held_close(struct actor *a);
/* Items before `oldest` are done, and some of them are about to be dropped; then `taken` are left of them. */
void clock_held_forget(const struct clock *k, struct actor *a, int oldest);
void clock_held_renumber(struct actor *a, int taken);
/* Notes what a role holds when a state of that level is recorded; `was` learns it, a state recorded before: the last one, or an earlier one. */
void clock_held_note(const struct clock *k, struct actor *a, int level, struct held_now *to);
void clock_held_since(struct held_now *was, bool last, const struct held_now *now);
/* Does what a role holds repeat between the two, `by` seconds? */
bool clock_held_again(const struct held_now *now, const struct held_now *then, double by);
/* The clock jumps so many times over what was done between the two, `by` seconds. */
void clock_held_jump(struct actor *a, const struct held_now *now, const struct held_now *then, double by, int64_t times);

/* ---- clock_skip.c ---- */
/* Actor a has begun another iteration of the repeat at a->passed: records the state, and jumps if it equals an
 * earlier one. */
void clock_skip_boundary(struct clock *k, struct actor *a);
/* Forgets the states recorded for a role's repeats from this level on. */
void clock_skip_forget(struct clock *k, const struct actor *a, int level);
/* Items before `oldest` are done, and some of them are about to be dropped: they count in later states.  Then: map[i] is the number that item i
 * has from now on, of n, or -1, and `kept` are left. */
void clock_skip_count(struct actor *a, int oldest);
void clock_skip_renumber(struct clock *k, struct actor *a, const int *map, int n, int kept);
/* The first item that is not done, or a->n. */
int  clock_oldest(const struct actor *a);
void clock_skip_close(struct clock *k);

#endif
