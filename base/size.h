/* size.h -- sizes and counts as people write and read them.
 *
 *     int64_t memory;
 *     if (size_parse("--memory", "80GiB", &memory) < 0)
 *         return 2;                        (the reason is already on stderr)
 *     printf("%s\n", size_text(memory).s);             80.00 GiB
 *
 * Bytes take B, kB, MB ... (powers of 1000) and KiB, MiB ... (powers of 1024);
 * counts take K, M, B, T (thousand to trillion).  Case does not matter, and a
 * space may stand before the unit.  The arithmetic is in whole numbers: 1e18 is
 * exact, which it would not be by way of a double. */
#ifndef DPX_SIZE_H
#define DPX_SIZE_H

#include <stdint.h>

/* 0, or -1 with one line that starts with `what`: not a number, negative,
 * unknown unit, above SIZE_LIMIT, or not whole.  A size in kB or more is rounded
 * to the byte instead (1.3GiB); a count never is. */
int size_parse(const char *what, const char *text, int64_t *out);
int count_parse(const char *what, const char *text, int64_t *out);
/* Of tokens in a sequence: K is 1024 and M 1024 K, as in the names of models (8k: 8192; 128k: 131072). */
int length_parse(const char *what, const char *text, int64_t *out);

/* A memory of less than this is one whose unit was forgotten: 80 for 80GB.  -1 with that reported. */
enum { MEMORY_LEAST = 1000000 };
int size_too_small(const char *what, int64_t bytes);

struct size_text { char s[24]; };

/* "512 B", "25.00 MiB", "1.07 TiB"; never "1024.00" of a unit. */
struct size_text size_text(int64_t bytes);
/* "999", "124.44M", "8.03B". */
struct size_text count_text(int64_t n);

#endif
