/* tfevents.c -- see tfevents.h.  A record is its length, the masked CRC-32C of that, the data, their CRC (tensorflow/core/lib/io/record_writer.cc);
 * the data is an Event (event.proto: wall_time 1, step 2, file_version 3, summary 5) with one value (tag 1, simple_value 2). */
#include "exec/process/tfevents.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/room.h"

enum { LONGEST_TAG = 64, RECORD = 256 };

struct tfevents { FILE *f; char path[4500]; };

/* ---- bytes ---- */

struct bytes { unsigned char at[RECORD]; size_t n; };

static void put_byte(struct bytes *b, unsigned v) { b->at[b->n++] = (unsigned char)v; }

static void put_fixed(struct bytes *b, uint64_t v, int size)
{
    for (int i = 0; i < size; i++)
        put_byte(b, (unsigned)(v >> 8 * i & 255));
}

static void put_varint(struct bytes *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        put_byte(b, (unsigned)(v & 127) | 128);
    put_byte(b, (unsigned)v);
}

static void put_key(struct bytes *b, unsigned field, unsigned wire) { put_varint(b, field << 3 | wire); }

static void put_bytes(struct bytes *b, unsigned field, const void *data, size_t n)
{
    put_key(b, field, 2);
    put_varint(b, n);
    memcpy(b->at + b->n, data, n);
    b->n += n;
}

static void put_double(struct bytes *b, unsigned field, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    put_key(b, field, 1);
    put_fixed(b, bits, 8);
}

static void put_float(struct bytes *b, unsigned field, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    put_key(b, field, 5);
    put_fixed(b, bits, 4);
}

/* ---- records ---- */

/* CRC-32C (Castagnoli), rotated and moved so that data that hold CRCs have others. */
static uint32_t masked_crc(const unsigned char *p, size_t n)
{
    uint32_t c = 0xffffffffu;

    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_record(struct tfevents *t, const struct bytes *data)
{
    struct bytes head = { .n = 0 }, tail = { .n = 0 };

    put_fixed(&head, data->n, 8);
    put_fixed(&head, masked_crc(head.at, 8), 4);
    put_fixed(&tail, masked_crc(data->at, data->n), 4);
    fwrite(head.at, 1, head.n, t->f);
    fwrite(data->at, 1, data->n, t->f);
    fwrite(tail.at, 1, tail.n, t->f);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* ---- the file ---- */

int tfevents_check(const char *folder)
{
    struct stat st;

    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return fail("%s: cannot make the folder: %s", folder, strerror(errno));
    if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
        return fail("%s: is no folder: TensorBoard reads folders", folder);
    return access(folder, W_OK) < 0 ? fail("%s: cannot be written: %s", folder, strerror(errno)) : 0;
}

struct tfevents *tfevents_open(const char *folder)
{
    static const char version[] = "brain.Event:2";
    struct bytes event = { .n = 0 };
    char host[128] = "";

    if (tfevents_check(folder) < 0)
        return NULL;
    struct tfevents *t = room_new(1, sizeof *t);
    gethostname(host, sizeof host - 1);
    snprintf(t->path, sizeof t->path, "%.4000s/events.out.tfevents.%010lld.%s.%d.dpx", folder, (long long)time(NULL), host[0] ? host : "host",
             (int)getpid());
    if (!(t->f = fopen(t->path, "wb"))) {
        fail("%s: %s", t->path, strerror(errno));
        free(t);
        return NULL;
    }
    put_double(&event, 1, now());
    put_bytes(&event, 3, version, sizeof version - 1);
    put_record(t, &event);
    return t;
}

void tfevents_scalar(struct tfevents *t, int64_t step, const char *tag, double v)
{
    struct bytes value = { .n = 0 }, summary = { .n = 0 }, event = { .n = 0 };

    if (isnan(v))
        return;
    put_bytes(&value, 1, tag, strnlen(tag, LONGEST_TAG));
    put_float(&value, 2, (float)v);
    put_bytes(&summary, 1, value.at, value.n);
    put_double(&event, 1, now());
    put_key(&event, 2, 0);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.at, summary.n);
    put_record(t, &event);
}

int tfevents_flush(struct tfevents *t)
{
    return fflush(t->f) != 0 || ferror(t->f) ? fail("%s: %s", t->path, strerror(errno)) : 0;
}

void tfevents_close(struct tfevents *t)
{
    if (!t)
        return;
    fclose(t->f);
    free(t);
}
