/* printable.c -- others' text without control characters, cut to a length that fits a line. */
#include "base/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, its code in *code; 0: none (The Unicode Standard, table 3-7). */
static int utf8(const unsigned char *s, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;

    if (n == 0 || s[0] > 0xf4)
        return 0;
    *code = n == 1 ? s[0] : s[0] & (0xffU >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3fU);
    }
    return *code < least[n] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff) ? 0 : n;
}

/* Bytes of the printable character at s; 0: it is not one. */
static int shown(const char *s)
{
    uint32_t c;
    int n = utf8((const unsigned char *)s, &c);

    if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0))
        return 0;
    if ((c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
        return 0;
    return n;
}

bool printable(const char *s)
{
    for (int n; *s; s += n)
        if ((n = shown(s)) == 0)
            return false;
    return true;
}

size_t printable_copy(char *to, size_t size, const char *s)
{
    size_t at = 0;

    while (*s) {
        char escape[5];
        int n = shown(s), length = n;
        const char *from = s;

        if (n == 0) {
            const char *letter = strchr("\nn\tt\rr", *s);
            length = letter && strchr("\n\t\r", *s) ? snprintf(escape, sizeof escape, "\\%c", letter[1])
                                                     : snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)*s);
            from = escape;
            n = 1;
        }
        if (at + (size_t)length >= size)
            break;
        memcpy(to + at, from, (size_t)length);
        at += (size_t)length;
        s += n;
    }
    if (size)
        to[at] = '\0';
    return at;
}
