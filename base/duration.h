/* duration.h -- times as people write and read them.
 *
 *     double s;
 *     if (duration_parse("--every", "30min", &s) < 0)
 *         return 2;                        (the reason is already on stderr)
 *     printf("%s\n", duration_text(s).s);              30 min
 *
 * Units: ms, s, min, h, d (also sec, hour, hours, day, days, weeks, years: of 365.25 days).  A number without one is refused, for it
 * might be any of them. */
#ifndef DPX_DURATION_H
#define DPX_DURATION_H

/* Seconds, above 0, at most a million years.  0, or -1 with one line that starts with `what`. */
int duration_parse(const char *what, const char *text, double *out);

struct duration_text { char s[32]; };

/* "84 ms", "8.93 s", "12.3 min", "2.40 hours", "54.0 days", "3.2 years". */
struct duration_text duration_text(double seconds);

#endif
