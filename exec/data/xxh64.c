/* xxh64.c -- XXH64 as its specification states it. */
#include "exec/data/xxh64.h"

static const uint64_t prime[6] = { 0, 0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                   0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u };

static uint64_t rotate(uint64_t v, int by) { return v << by | v >> (64 - by); }

/* Little-endian on any machine. */
static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static uint64_t mix(uint64_t acc, uint64_t lane) { return rotate(acc + lane * prime[2], 31) * prime[1]; }

static uint64_t merge(uint64_t acc, uint64_t lane) { return (acc ^ mix(0, lane)) * prime[1] + prime[4]; }

/* Stripes of 32 bytes into four accumulators; what is left begins at *p. */
static uint64_t stripes(const unsigned char **p, const unsigned char *end)
{
    uint64_t acc[4] = { prime[1] + prime[2], prime[2], 0, 0 - prime[1] }, h;

    for (; end - *p >= 32; *p += 32)
        for (int i = 0; i < 4; i++)
            acc[i] = mix(acc[i], number(*p + 8 * i, 8));
    h = rotate(acc[0], 1) + rotate(acc[1], 7) + rotate(acc[2], 12) + rotate(acc[3], 18);
    for (int i = 0; i < 4; i++)
        h = merge(h, acc[i]);
    return h;
}

uint64_t xxh64(const void *bytes, size_t n)
{
    const unsigned char *p = bytes, *end = p + n;
    uint64_t h = n >= 32 ? stripes(&p, end) : prime[5];

    h += n;
    for (; end - p >= 8; p += 8)
        h = rotate(h ^ mix(0, number(p, 8)), 27) * prime[1] + prime[4];
    for (; end - p >= 4; p += 4)
        h = rotate(h ^ number(p, 4) * prime[1], 23) * prime[2] + prime[3];
    for (; p < end; p++)
        h = rotate(h ^ *p * prime[5], 11) * prime[1];
    h = (h ^ h >> 33) * prime[2];
    h = (h ^ h >> 29) * prime[3];
    return h ^ h >> 32;
}
