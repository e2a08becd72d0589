#!/bin/sh
# tests/accuracy/repeats.sh A.db B.db -- how far two calibrations of one machine are apart: what the least
# errors of an interval rest on (LEAST_ERROR in sim/price/measured_cost.c, NOISE in sim/price/coll_cost.c).  Each of the
# two has 1/sqrt 2 of it.  Within a node a series is divided by its quicker probe.  Needs the sqlite3 shell.
#
#     tests/accuracy/repeats.sh build/accuracy/accuracy.db build/accuracy/again.db
set -eu
[ $# = 2 ] || { echo "usage: $0 A.db B.db" >&2; exit 2; }
for db; do [ -r "$db" ] || { echo "$0: $db cannot be read" >&2; exit 2; }; done
sqlite3 -readonly "$1" "ATTACH '$2' AS b" "
WITH apart AS (
    SELECT CASE WHEN x.kind = 'kernel' THEN 'kernels' WHEN x.ranks > x.per_node THEN 'collectives between nodes'
                ELSE 'collectives of one node' END AS what,
           CASE WHEN x.median_s < 0.01 THEN '1 to 10 ms' ELSE 'above 10 ms' END AS size,
           abs(x.median_s / y.median_s * CASE WHEN x.kind = 'collective' AND x.ranks > x.per_node THEN 1
               ELSE min(y.probe_before_s, y.probe_after_s) / min(x.probe_before_s, x.probe_after_s) END - 1) AS d
    FROM main.series x JOIN b.series y USING (kind, name, fn, class, dtype, algorithm, ranks, per_node, threads, batch,
         m, n, k, seq, dim, bytes, dropout, beside)
    WHERE x.kind IN ('kernel', 'collective') AND x.beside = '' AND x.median_s >= 0.001),
ranked AS (SELECT what, size, d, row_number() OVER (PARTITION BY what, size ORDER BY d) AS i,
                  count(*) OVER (PARTITION BY what, size) AS n FROM apart)
SELECT printf('%s, %s: %d series, half within %.1f %%, nine of ten within %.1f %%', what, size, n,
              100 * max(CASE WHEN i <= (n + 1) / 2 THEN d END), 100 * max(CASE WHEN i <= (9 * n + 9) / 10 THEN d END))
FROM ranked GROUP BY what, size"
