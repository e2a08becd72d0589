/* recorded_size.c -- see recorded_size.h. */
#include "model/arch/recorded_size.h"

#include <ctype.h>
#include <string.h>

#include "base/fail.h"
#include "base/room.h"

#define LARGEST_DIVISOR ((int64_t)1 << 40)

static void add_term(struct recorded *r, struct rec_term t, struct rec_size *out)
{
    r->terms = room_for(r->terms, r->nterms, &r->terms_room, sizeof *r->terms);
    r->terms[r->nterms++] = t;
    out->n++;
}

/* Digits at *s, up to `most`; -1: none, or more. */
static int64_t digits(const char **s, int64_t most)
{
    int64_t n = 0;

    if (!isdigit((unsigned char)**s))
        return -1;
    for (; isdigit((unsigned char)**s); ++*s) {
        n = 10 * n + (**s - '0');
        if (n > most)
            return -1;
    }
    return n;
}

/* "b", "s^2": adds its power.  false: it is neither, or of too high a power. */
static bool variable(const char **s, struct rec_term *t)
{
    uint8_t *power = **s == 'b' ? &t->pb : **s == 's' ? &t->ps : NULL;
    int64_t n = 1;

    if (!power)
        return false;
    ++*s;
    if (**s == '^') {
        ++*s;
        n = digits(s, RECORDED_DEGREE);
    }
    if (n < 1 || *power + n > RECORDED_DEGREE)
        return false;
    *power = (uint8_t)(*power + n);
    return true;
}

/* Factors joined by *, then perhaps a divisor. */
static bool term(const char **s, struct rec_term *t)
{
    bool number = false;

    for (bool more = true; more; ) {
        if (isdigit((unsigned char)**s) && !number) {
            int64_t n = digits(s, SIZE_LIMIT);
            if (n < 0)
                return false;
            t->num *= n;
            number = true;
        } else if (!variable(s, t)) {
            return false;
        }
        more = **s == '*';
        *s += more;
    }
    if (**s == '/') {
        ++*s;
        t->den = digits(s, LARGEST_DIVISOR);
    }
    return t->den >= 1;
}

int recorded_read_size(struct recorded *r, const json_t *j, const char *where, struct rec_size *out)
{
    const char *text = json_string_value(j), *s = text;

    *out = (struct rec_size){ .first = (int32_t)r->nterms };
    if (r->nterms > INT32_MAX - RECORDED_TERMS)
        return fail("%s: the file has more than 2^31 terms", where);
    if (json_is_integer(j)) {
        if (json_integer_value(j) < 0 || json_integer_value(j) > SIZE_LIMIT)
            return fail("%s: %lld: a size is from 0 to 2^60", where, (long long)json_integer_value(j));
        if (json_integer_value(j) > 0)
            add_term(r, (struct rec_term){ .num = json_integer_value(j), .den = 1 }, out);
        return 0;
    }
    if (!text)
        return fail("%s: expected a size: a number, or a polynomial as \"3072*b*s+8*s\"", where);
    do {
        struct rec_term t = { .num = *s == '-' ? -1 : 1, .den = 1 };
        s += *s == '-' || (*s == '+' && s > text);
        if (!term(&s, &t) || (*s && *s != '+' && *s != '-'))
            return fail("%s: \"%.60s\": expected a polynomial as \"3072*b*s+8*s\" or \"5*b*s^2/256\": powers up to %d, numbers up to 2^60", where, text,
                        RECORDED_DEGREE);
        if (out->n == RECORDED_TERMS)
            return fail("%s: \"%.60s\": more than %d terms", where, text, RECORDED_TERMS);
        add_term(r, t, out);
    } while (*s);
    return 0;
}

/* a * b within 2^100 either way. */
static bool wide_mul(__int128 a, __int128 b, __int128 *out)
{
    const __int128 most = (__int128)1 << 100;

    return !__builtin_mul_overflow(a, b, out) && *out <= most && *out >= -most;
}

/* n * b^pb * s^ps. */
static bool powers(const struct rec_term *t, int64_t batch, int64_t size, __int128 *out)
{
    *out = t->num;
    for (int i = 0; i < t->pb + t->ps; i++)
        if (!wide_mul(*out, i < t->pb ? batch : size, out))
            return false;
    return true;
}

int recorded_at(const struct recorded *r, struct rec_size z, int64_t batch, int64_t size, int64_t *out)
{
    __int128 num = 0, den = 1, x;

    *out = 0;
    for (int i = 0; i < z.n; i++) {
        const struct rec_term *t = &r->terms[z.first + i];
        if (!powers(t, batch, size, &x))
            return -1;
        if (t->den != den) {            /* num/den + x/t->den */
            if (!wide_mul(num, t->den, &num) || !wide_mul(x, den, &x) || !wide_mul(den, t->den, &den))
                return -1;
        }
        num += x;
        for (int64_t d = t->den; d > 1 && den % d == 0 && num % d == 0; ) {
            num /= d;
            den /= d;
        }
    }
    if (num < 0 || num % den || num / den > SIZE_LIMIT)
        return -1;
    *out = (int64_t)(num / den);
    return 0;
}
