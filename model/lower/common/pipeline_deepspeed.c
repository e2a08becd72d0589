/* pipeline_deepspeed.c -- passes and messages of DeepSpeed's TrainSchedule.
 *
 * Source: deepspeed/runtime/pipe/schedule.py, TrainSchedule.steps(), and p2p.py of 0.19.6 and 0.19.8.  Time steps alternate between a
 * forward and a backward, neighbours in opposite turn; what the pass before made is sent when the next step begins, and the stream
 * waits for each message (dist.send(), dist.recv()). */
#include "model/lower/common/pipeline_comm.h"

/* _step_to_micro_batch(): of stage `rank` at a time step; negative, or past the last: none. */
static int micro_batch(const struct pipeline *p, int rank, int step, bool *forward)
{
    *forward = step % 2 == rank % 2;
    if (*forward)
        return (step - rank % 2) / 2 - rank / 2;
    return rank % 2 ? step / 2 - p->ranks + (rank + 1) / 2 : (step - 1) / 2 - p->ranks + 1 + rank / 2;
}

static void message(struct pipeline_acts *l, enum pipeline_verb verb, int step)
{
    pipeline_acts_add(l, verb, 0, step, false);
    pipeline_acts_add(l, (enum pipeline_verb)(verb + PIPE_WAIT_SEND_F - PIPE_SEND_F), 0, step, false);
}

void pipeline_deepspeed(const struct pipeline *p, int rank, struct pipeline_acts *out)
{
    int total = 2 * (p->steps + p->ranks - 1), before = -1;
    bool first = rank == 0, last = rank == p->ranks - 1;

    for (int step = 0; step < total; step++) {
        bool forward;
        int now = micro_batch(p, rank, step, &forward);
        bool runs = now >= 0 && now < p->steps, ran = before >= 0 && before < p->steps;
        if (forward) {
            if (ran && !first)
                message(out, PIPE_SEND_B, before);
            if (runs && !first)
                message(out, PIPE_RECV_F, now);
        } else {
            if (runs && !last)
                message(out, PIPE_RECV_B, now);
            if (ran && !last)
                message(out, PIPE_SEND_F, before);
        }
        if (runs)
            pipeline_acts_add(out, forward ? PIPE_FORWARD : PIPE_BACKWARD, 0, now, false);
        before = now;
    }
}
