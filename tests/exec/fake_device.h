/* fake_device.h -- an asynchronous device without one: each stream is a FIFO with a thread of its own,
 * kernels are the host's, run there later.
 *
 * What goes wrong on a real device goes wrong here, and loudly: device memory cannot be read or written
 * by the host (its addresses are mapped to nothing; kernels see the bytes elsewhere); streams
 * dawdle at random, so that a wait that is missing shows; results come with finish() and not
 * before; new memory is full of NaN; to wait for a mark that was never made ends the program. */
#ifndef DPX_TESTS_EXEC_FAKE_DEVICE_H
#define DPX_TESTS_EXEC_FAKE_DEVICE_H

#include "tests/exec/fake_kernels.h"
#include "tests/exec/fake_streams.h"

static inline void fake_close(struct device *d)
{
    struct fake *f = d->self;

    pthread_mutex_lock(&f->lock);
    f->closing = true;
    for (int s = 0; s < NSTREAM; s++)
        pthread_cond_signal(&f->stream[s].work);
    pthread_mutex_unlock(&f->lock);
    for (int s = 0; s < NSTREAM; s++)
        pthread_join(f->stream[s].thread, NULL);
    if (f->used)
        fake_bug("memory is still mapped");
    free(f);
}

static const struct device_ops fake_ops = {
    .kind = "fake", .map = fake_map_memory, .unmap = fake_unmap, .pin = fake_pin, .unpin = fake_unpin,
    .enter = fake_enter, .mark = fake_mark, .after = fake_after, .wait = fake_wait, .anchor = fake_anchor,
    .begin = fake_begin, .times = fake_times, .stream = fake_stream, .fetch = fake_fetch, .store = fake_store,
    .drain = fake_drain, .used = fake_used, .kernels = fake_kernels, .close = fake_close,
};

static inline struct device *fake_open(unsigned seed)
{
    struct fake *f = calloc(1, sizeof *f);

    f->d = (struct device){ .ops = &fake_ops, .async = true, .name = "a fake device", .id = "fake", .self = f };
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->change, NULL);
    for (int s = 0; s < NSTREAM; s++) {
        f->stream[s] = (struct CUstream_st){ .f = f, .dawdles = seed * NSTREAM + (unsigned)s };
        f->stream[s].last = &f->stream[s].first;
        pthread_cond_init(&f->stream[s].work, NULL);
        if (pthread_create(&f->stream[s].thread, NULL, fake_work, &f->stream[s]) != 0)
            fake_bug("no thread");
    }
    return &f->d;
}

#endif
