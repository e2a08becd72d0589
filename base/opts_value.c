/* opts_value.c -- from the text of a value to the variable of its option's row; words, and the nearest of them. */
#include "base/opts.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/opts_internal.h"
#include "base/size.h"

/* ---- words ---- */

#define LONGEST 48

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b. */
static int edits(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    int d[LONGEST + 1][LONGEST + 1];    /* d[i][j]: of the first i and the first j letters */

    if (m > LONGEST || n > LONGEST)
        return LONGEST;
    for (size_t i = 0; i <= m; i++)
        for (size_t j = 0; j <= n; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (int)(i + j);
                continue;
            }
            d[i][j] = smaller(smaller(d[i - 1][j], d[i][j - 1]) + 1,
                              d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = smaller(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[m][n];
}

const char *opts_nearest_word(const char *typed, const char *const *words)
{
    const char *best = NULL;
    size_t len = strlen(typed);
    int fewest = 1 + (int)(len < 6 ? 2 : len > LONGEST ? LONGEST / 3 : len / 3);

    for (; *words; words++) {
        /* Cut short is nearer than any typo. */
        int e = len >= 2 && strncmp(typed, *words, len) == 0 ? 0 : edits(typed, *words);

        if (e < fewest && e < (int)strlen(*words)) {
            fewest = e;
            best = *words;
        }
    }
    return best;
}

/* Index of the word that the first `len` bytes of s spell, or -1. */
static int word_index(const char *s, size_t len, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strlen(words[i]) == len && memcmp(words[i], s, len) == 0)
            return i;
    return -1;
}

const char *opts_join(char *buf, size_t size, const char *const *words, const char *with)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; words[i] && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? with : "", words[i]);
    return buf;
}

/* ---- values ---- */

static int bad_word(const char *what, const char *value, const char *const *words)
{
    char all[512];
    const char *near = opts_nearest_word(value, words);

    return fail("%s: '%.60s' is not one of %s%s%s%s", what, value,
                opts_join(all, sizeof all, words, ", "),
                near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int parse_set(const char *what, const char *value, const struct opt *o)
{
    uint64_t set = 0;

    for (const char *s = value;; s++) {
        size_t len = strcspn(s, ",");
        int w = word_index(s, len, o->words);
        char one[64];

        snprintf(one, sizeof one, "%.*s", (int)(len < 60 ? len : 60), s);
        if (w < 0)
            return bad_word(what, one, o->words);
        assert(w < 64);
        set |= UINT64_C(1) << w;
        s += len;
        if (*s == '\0')
            break;
    }
    *o->set = set;
    return 0;
}

/* Letters and signs: "US$", "EUR", and what is not ASCII.  ",10" and "/h" are none. */
static bool is_currency(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalpha((unsigned char)s[i]) && s[i] != '$' && !((unsigned char)s[i] & 0x80))
            return false;
    return true;
}

/* The digits of "$2.10", "2.10 EUR" into `digits`, and the currency.  One letter is none: "h100" is a GPU. */
static void split_money(const char *value, char digits[32], char (*sign)[8])
{
    size_t before = strcspn(value, "0123456789.-"), n = strspn(value + before, "0123456789.eE+-"), behind;
    const char *end = value + before + n;
    const char *from = before ? value : end + strspn(end, " ");

    behind = before ? before : strlen(from);
    while (behind > 0 && from[behind - 1] == ' ')
        behind--;
    bool both = before && *end, letter = behind == 1 && isalpha((unsigned char)from[0]);
    bool fits = n > 0 && n < 32 && behind < sizeof *sign && !both && !letter && is_currency(from, behind);
    snprintf(digits, 32, "%.*s", fits ? (int)n : 31, fits ? value + before : value);
    snprintf(*sign, sizeof *sign, "%.*s", fits ? (int)behind : 0, from);
}

/* "2,10", "5%", "700W": what stands behind the number says what to write. */
static int not_a_number(const char *what, const char *value, size_t n, double x)
{
    if (n > 0 && value[n] == ',' && isdigit((unsigned char)value[n + 1]))
        return fail("%s: '%.60s' is not a number; write it with a point, and nothing between thousands", what, value);
    if (n > 0 && !strcmp(value + n, "%"))
        return fail("%s: '%.60s' is not a number; did you mean %g?", what, value, x / 100);
    if (n > 0 && value[n] && isdigit((unsigned char)value[0]) && value[1] != 'x')
        return fail("%s: '%.60s' is not a number; write it without \"%.20s\", in the unit that --help names", what, value, value + n);
    return fail("%s: '%.60s' is not a number", what, value);
}

static int parse_num(const char *what, const char *value, double *out)
{
    char *end;
    double x = strtod(value, &end);

    /* strtod() would also take hexadecimal, "inf" and leading space. */
    size_t n = strspn(value, "0123456789.eE+-");
    if (end == value || *end || n != strlen(value))
        return not_a_number(what, value, n, x);
    if (!isfinite(x) || x < 0)
        return fail("%s: '%.60s' is %s", what, value, x < 0 ? "negative" : "too large");
    *out = x;
    return 0;
}

int opts_money(const char *what, const char *value, double *out, char (*sign)[8])
{
    char digits[32];

    split_money(value, digits, sign);
    return parse_num(what, digits, out);
}

static int parse_whole(const char *what, const char *value, const struct opt *o)
{
    int64_t n;

    if ((o->i ? count_parse : o->length ? length_parse : size_parse)(what, value, &n) < 0)
        return -1;
    if (o->bytes && o->min == MEMORY_LEAST && n < o->min)
        return size_too_small(what, n);
    if (n < o->min)
        return fail("%s: '%.60s' is too small; at least %" PRId64, what, value, o->min);
    *(o->i ? o->i : o->length ? o->length : o->bytes) = n;
    return 0;
}

/* "fsdp.reshard_after_forward=true": a key before the sign. */
bool opts_is_pair(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && s[n] == '=' && s[0] != '-' && s[0] != '.';
}

static int add_pair(const char *what, const char *value, bool any, struct opt_pairs *to)
{
    if (!any && !opts_is_pair(value))
        return fail("%s: '%.60s' is not KEY=VALUE", what, value);
    if (to->n == (int)(sizeof to->at / sizeof *to->at))
        return fail("%s: more than %d of them", what, to->n);
    to->at[to->n++] = value;
    return 0;
}

int opts_set_value(const struct opt *o, const char *what, const char *value)
{
    if (o->pairs || o->many)
        return add_pair(what, value, o->many != NULL, o->pairs ? o->pairs : o->many);
    if (o->i || o->bytes || o->length)
        return parse_whole(what, value, o);
    if (o->sign)
        return opts_money(what, value, o->num, o->sign);
    if (o->num)
        return parse_num(what, value, o->num);
    if (o->set)
        return parse_set(what, value, o);
    if (o->word) {
        int w = word_index(value, strlen(value), o->words);

        if (w < 0)
            return bad_word(what, value, o->words);
        *o->word = w;
        return 0;
    }
    assert(o->str);
    if (*value == '\0')
        return fail("%s: is empty", what);
    *o->str = value;
    return 0;
}

const char *opts_value_name(const struct opt *o, char *buf, size_t size)
{
    if (o->value)
        return o->value;
    if (o->word)
        return opts_join(buf, size, o->words, "|");
    return o->set ? "LIST" : o->i || o->length ? "N" : o->pairs ? "KEY=VALUE ..." : o->bytes ? "BYTES" : o->num ? "X" : "TEXT";
}

const char *opts_default_text(const struct opt *o, char *buf, size_t size)
{
    buf[0] = '\0';
    if (o->i && *o->i > 0)
        snprintf(buf, size, " (default %" PRId64 ")", *o->i);
    else if (o->bytes && *o->bytes > 0)
        snprintf(buf, size, " (default %s)", size_text(*o->bytes).s);
    else if (o->num && *o->num > 0)
        snprintf(buf, size, " (default %g)", *o->num);
    else if (o->str && *o->str)
        snprintf(buf, size, " (default %s)", *o->str);
    else if (o->word && *o->word >= 0)
        snprintf(buf, size, " (default %s)", o->words[*o->word]);
    return buf;
}
