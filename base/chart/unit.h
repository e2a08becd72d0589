/* unit.h -- numbers as people read them: always with their unit. */
#ifndef DPX_UNIT_H
#define DPX_UNIT_H

enum measure {
    UNIT_TEXT,          /* no number */
    UNIT_ID,            /* a run's number, a rank */
    UNIT_COUNT,
    UNIT_BYTES, UNIT_SECONDS,
    UNIT_SHARE,         /* 0.25: 25.0 % */
    UNIT_CHANGE,        /* 0.25: +25.0 % */
    UNIT_TIMES,         /* 2.5: 2.5 times */
    UNIT_TOKENS_S,
    UNIT_GBS,           /* 1e9 bytes/s */
    UNIT_GFLOPS,        /* 1e9 FLOP/s */
    UNIT_FLOP,
    UNIT_LOSS,          /* nats a token */
};

struct shown { char s[48]; };

/* "1.29 s", "285 ms", "151.22 MiB", "+3.1 %"; NaN: "–". */
struct shown unit_shown(enum measure u, double v);
/* For an axis: no more digits than a round number needs. */
struct shown unit_shown_tick(enum measure u, double v);

#endif
