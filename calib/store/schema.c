/* schema.c -- what is in the database.
 *
 *     machine      a computer, as runs and calibrations name it
 *     plan         a plan.json document; every distinct text once
 *     run          one dpxrun: what, where, with what, and how it ended
 *     prediction   what was expected of it: committed before its first step, never changed
 *     phase, comm  a step's phases, the run's collectives: predicted beside measured
 *     step         every optimizer step        memory   peaks of every rank
 *     entry        entries of the schedule in sampled steps: predicted beside measured
 *     stage        where the time of a pipeline's stages went: both sides
 *     part         of what a rank's peak consists     moment   bytes live, entry by entry: both sides
 *     rank_phase   a framework's run: peaks of each rank in init, first, second and steady steps, both sides
 *     rank_step    its every step on each rank        rank_part    where the time of one traced step went, by rank
 *     rank_clock   clocks of each rank's GPU while they ran
 *     checkpoint   each time that the state of all ranks was saved or loaded: both sides
 *
 *     calibration  one dpxcal run, or one import: when, where, with what; of a trace, threads are 0; and
 *                  what share of the cores others used meanwhile (crowd)
 *     series       one thing that was timed: what, the summary of its samples, and the probe product's
 *                  time just before and after it (a shared machine drifts)
 *     sample       every repetition
 *     fit          the law of each thing that was timed at several sizes, seconds = fixed_s + per_s * x:
 *                  how far the points lie from it (residual, worst, left_out), and in which range
 *
 * For the sqlite3 shell there are views: runs, steps, phases, stages, comms, entries, checkpoints, and calibrations,
 * measured (what counts now), collectives, messages, overlaps, fits, each with the quotients that one would
 * ask for first:
 *
 *     sqlite3 ~/.local/share/dpx/dpx.db
 *     SELECT run, strategy, predicted_step_s, step_s, error FROM runs;
 *     SELECT * FROM entries WHERE run = 7 AND step = 3 ORDER BY late_s DESC LIMIT 10;
 *     DELETE FROM run WHERE id = 7;        (after PRAGMA foreign_keys = ON: all of it)
 *     SELECT name, m, n, k, gflops, spread FROM measured WHERE kind = 'kernel' AND m > 0;
 *     SELECT bytes, us, busbw_gbs FROM collectives WHERE op = 'all_gather' AND ranks = 2;
 *     SELECT name, algorithm, fixed_us, gbs, from_x, to_x, residual, worst FROM fits WHERE kind = 'collective';
 *
 * A run without an outcome still runs, or its process died.  Columns end in their unit: _s seconds,
 * _bytes bytes; times of day are seconds since 1970.  NULL is not known, not predicted, or (a
 * loss) not a number.  Calibrations have tables of their own beside machine: no fit reads a run.
 * A fit reads the summaries in `series` alone, and of those only the newest of each thing
 * (is_now), however many samples there are.  Fits are written when a calibration ends or is
 * imported, of the things that it has timed; a deleted calibration takes its fits along.
 *
 * A version that was released is final: to change a table, append one to `versions`. */
#include "calib/store/schema.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "calib/store/fits.h"

/* Of series: the same thing timed on the same machine, whichever calibration it belongs to. */
#define SAME_KEY(row) SAME_OF("series", row)
#define SAME_OF(a, b) \
    a ".machine = " b ".machine AND " a ".kind = " b ".kind AND " a ".name = " b ".name AND " a ".bytes = " b ".bytes" \
    " AND " a ".fn = " b ".fn AND " a ".dtype = " b ".dtype AND " a ".algorithm = " b ".algorithm" \
    " AND " a ".ranks = " b ".ranks AND " a ".per_node = " b ".per_node AND " a ".threads = " b ".threads" \
    " AND " a ".batch = " b ".batch AND " a ".m = " b ".m AND " a ".n = " b ".n AND " a ".k = " b ".k" \
    " AND " a ".seq = " b ".seq AND " a ".dim = " b ".dim AND " a ".dropout = " b ".dropout" \
    " AND " a ".beside = " b ".beside"

static const char version_1[] =
"CREATE TABLE machine ("
"    id            INTEGER PRIMARY KEY,"
"    host          TEXT NOT NULL,"
"    device        TEXT NOT NULL,"                      /* 'cpu' or the GPU */
"    cpu           TEXT NOT NULL,"
"    cores         INTEGER NOT NULL,"
"    memory_bytes  INTEGER NOT NULL,"
"    UNIQUE (host, device, cpu, cores, memory_bytes)"
") STRICT;"

"CREATE TABLE plan ("
"    id            INTEGER PRIMARY KEY,"
"    document      TEXT NOT NULL UNIQUE CHECK (json_valid(document)),"
"    model         TEXT GENERATED ALWAYS AS (CASE json_type(document, '$.model')"
"                  WHEN 'text' THEN json_extract(document, '$.model')"
"                  ELSE json_extract(document, '$.model._name_or_path') END) STORED,"
"    strategy      TEXT GENERATED ALWAYS AS (json_extract(document, '$.strategy')) STORED,"
"    dialect       TEXT GENERATED ALWAYS AS (json_extract(document, '$.dialect')) STORED"
") STRICT;"

"CREATE TABLE run ("
"    id            INTEGER PRIMARY KEY AUTOINCREMENT,"  /* a number is never used again */
"    started       REAL NOT NULL,"
"    machine       INTEGER NOT NULL REFERENCES machine,"        /* rank 0's */
"    plan          INTEGER NOT NULL REFERENCES plan,"
"    world_size    INTEGER NOT NULL CHECK (world_size >= 1),"
"    seed          INTEGER NOT NULL,"
"    options       TEXT NOT NULL CHECK (json_valid(options)),"  /* an object: the command line */
"    dpx_version   TEXT, comm_version TEXT, kernels_version TEXT,"
"    outcome       TEXT CHECK (outcome IN ('finished', 'failed', 'interrupted')),"
"    reason        TEXT,"                               /* of a failure */
"    ended         REAL,"
"    step_s        REAL, step_p10_s REAL, step_p90_s REAL,"     /* median of steady steps, spread */
"    tokens_per_s  REAL"
") STRICT;"
"CREATE INDEX run_plan ON run (plan);"

"CREATE TABLE prediction ("
"    run           INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,"
"    basis         TEXT NOT NULL,"                      /* 'measured', 'published', 'datasheet' */
"    step_s        REAL, low_s REAL, high_s REAL,"      /* a steady step, its 90 % interval */
"    rank          INTEGER NOT NULL,"                   /* the fullest: it has these peaks */
"    held_bytes    INTEGER, allocated_bytes INTEGER, process_bytes INTEGER"
") STRICT;"

"CREATE TABLE step ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    step          INTEGER NOT NULL,"                   /* 1, 2, ... */
"    schedule      TEXT NOT NULL,"                      /* 'first', 'steady' */
"    loss          REAL, seconds REAL NOT NULL, lr REAL, grad_norm REAL,"
"    tokens        INTEGER NOT NULL,"                   /* of the global batch */
"    PRIMARY KEY (run, step)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE memory ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    host          TEXT,"
"    held_bytes    INTEGER, allocated_bytes INTEGER, process_bytes INTEGER,"    /* peaks */
"    PRIMARY KEY (run, rank)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE comm ("                                   /* the whole run, all phases */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    op TEXT, process_group TEXT, dtype TEXT,"
"    predicted_count INTEGER, predicted_bytes INTEGER," /* calls; their full buffers added up */
"    count         INTEGER, bytes INTEGER,"
"    PRIMARY KEY (run, op, process_group, dtype)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE phase ("                                  /* of a steady step */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    name          TEXT NOT NULL,"
"    position      INTEGER NOT NULL,"                   /* in order of appearance */
"    predicted_s   REAL, measured_s REAL,"
"    PRIMARY KEY (run, name)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE entry ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    step          INTEGER NOT NULL,"                   /* 0: the schedule 'init' */
"    rank          INTEGER NOT NULL,"
"    position      INTEGER NOT NULL,"                   /* in issue order, repeats unrolled */
"    entry         INTEGER NOT NULL, iteration INTEGER NOT NULL,"
"    schedule      TEXT NOT NULL, stream TEXT NOT NULL, kind TEXT NOT NULL,"
"    what          TEXT, unit TEXT,"
"    predicted_start_s REAL, predicted_end_s REAL, start_s REAL, end_s REAL,"   /* in that step */
"    PRIMARY KEY (run, step, rank, position)"
") STRICT, WITHOUT ROWID;"

/* A prediction that could be mended after the fact would be worth nothing. */
"CREATE TRIGGER prediction_is_final BEFORE UPDATE ON prediction BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"
"CREATE TRIGGER predicted_comm_is_final BEFORE UPDATE OF predicted_count, predicted_bytes ON comm BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"
"CREATE TRIGGER predicted_phase_is_final BEFORE UPDATE OF predicted_s ON phase BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"

/* step_s of a run that died: the median of the steady steps that it got to record. */
"CREATE VIEW runs AS SELECT r.id AS run, datetime(r.started, 'unixepoch') AS started, m.host, m.device,"
"    p.model, p.strategy, p.dialect, r.world_size, ifnull(r.outcome, 'open') AS outcome, r.reason,"
"    (SELECT count(*) FROM step s WHERE s.run = r.id) AS steps,"
"    d.basis, d.step_s AS predicted_step_s, d.low_s, d.high_s, r.step_s,"
"    r.step_s / d.step_s - 1 AS error, r.step_s BETWEEN d.low_s AND d.high_s AS within,"
"    r.tokens_per_s, d.held_bytes AS predicted_held_bytes,"
"    (SELECT max(held_bytes) FROM memory WHERE run = r.id) AS held_bytes,"
"    d.allocated_bytes AS predicted_allocated_bytes,"
"    (SELECT max(allocated_bytes) FROM memory WHERE run = r.id) AS allocated_bytes,"
"    d.process_bytes AS predicted_process_bytes,"
"    (SELECT max(process_bytes) FROM memory WHERE run = r.id) AS process_bytes,"
"    (SELECT loss FROM step s WHERE s.run = r.id ORDER BY step DESC LIMIT 1) AS last_loss"
"  FROM (SELECT id, started, machine, plan, world_size, outcome, reason, tokens_per_s,"
"            ifnull(step_s, (SELECT seconds FROM (SELECT seconds, count(*) OVER () AS n,"
"                    row_number() OVER (ORDER BY seconds) AS i FROM step s"
"                WHERE s.run = run.id AND schedule = 'steady') WHERE i = (n + 1) / 2)) AS step_s FROM run) r"
"    JOIN machine m ON m.id = r.machine JOIN plan p ON p.id = r.plan LEFT JOIN prediction d ON d.run = r.id;"

"CREATE VIEW steps AS SELECT s.run, p.model, p.strategy, s.step, s.schedule, s.loss, s.seconds,"
"    d.step_s AS predicted_s, s.seconds / d.step_s - 1 AS error, s.tokens / s.seconds AS tokens_per_s,"
"    s.lr, s.grad_norm"
"  FROM step s JOIN run r ON r.id = s.run JOIN plan p ON p.id = r.plan"
"    LEFT JOIN prediction d ON d.run = r.id;"

"CREATE VIEW phases AS SELECT run, name, predicted_s, measured_s, measured_s - predicted_s AS late_s,"
"    measured_s / predicted_s - 1 AS error FROM phase ORDER BY run, position;"

"CREATE VIEW comms AS SELECT run, op, process_group, dtype, predicted_count, count, predicted_bytes, bytes,"
"    count IS predicted_count AND bytes IS predicted_bytes AS equal FROM comm;"

"CREATE VIEW entries AS SELECT run, step, rank, position, schedule, stream, kind, what, unit, iteration,"
"    predicted_end_s - predicted_start_s AS predicted_s, end_s - start_s AS measured_s,"
"    (end_s - start_s) - (predicted_end_s - predicted_start_s) AS late_s,"
"    predicted_start_s, predicted_end_s, start_s, end_s FROM entry;";

static const char version_2[] =
"CREATE TABLE calibration ("
"    id            INTEGER PRIMARY KEY AUTOINCREMENT,"
"    started       REAL NOT NULL,"
"    ended         REAL,"                               /* NULL: it still runs, or was interrupted */
"    machine       INTEGER NOT NULL REFERENCES machine,"
"    source        TEXT NOT NULL CHECK (source IN ('dpxcal', 'nccl-tests')),"
"    ranks         INTEGER NOT NULL,"                   /* busy at once; 0: each series says its own */
"    threads       INTEGER NOT NULL,"                   /* of each rank's kernels */
"    options       TEXT NOT NULL CHECK (json_valid(options)),"
"    dpx_version   TEXT, comm_version TEXT, kernels_version TEXT,"
"    origin        TEXT"                                /* the file it was imported from */
") STRICT;"

"CREATE TABLE series ("
"    id            INTEGER PRIMARY KEY,"
"    calibration   INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,"
"    machine       INTEGER NOT NULL REFERENCES machine,"        /* the calibration's */
"    kind          TEXT NOT NULL CHECK (kind IN ('kernel', 'pass', 'collective', 'overlap', 'own')),"
"    name          TEXT NOT NULL,"                      /* 'mlp up dW', 'adamw', 'all_gather', 'handover' */
"    fn            TEXT NOT NULL,"                      /* of kernels.h: 'linear_dw'; '' where it has none */
"    class         TEXT NOT NULL,"                      /* 'gemm', 'attention' ...; '' */
"    dtype         TEXT NOT NULL,"                      /* a plan's precision; on the wire */
"    algorithm     TEXT NOT NULL,"                      /* of a collective: 'ring'; '' */
"    ranks         INTEGER NOT NULL, per_node INTEGER NOT NULL,"        /* of a group; busy at once */
"    threads       INTEGER NOT NULL,"
"    batch INTEGER NOT NULL, m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL,"
"    seq INTEGER NOT NULL, dim INTEGER NOT NULL,"       /* attention; else 0 */
"    bytes         INTEGER NOT NULL,"                   /* read and written; a collective's full buffer */
"    flops         REAL NOT NULL,"
"    dropout       INTEGER NOT NULL CHECK (dropout IN (0, 1)),"         /* a kernel of a plan that has some */
"    beside        TEXT NOT NULL,"      /* what else ran meanwhile; overlap: or 'alone before ...' */
"    started       REAL NOT NULL,"
"    probe_before_s REAL, probe_after_s REAL,"
"    samples       INTEGER NOT NULL CHECK (samples >= 1),"
"    median_s REAL NOT NULL, mean_s REAL NOT NULL, min_s REAL NOT NULL,"
"    p05_s REAL NOT NULL, p95_s REAL NOT NULL,"
"    confidence    REAL NOT NULL,"      /* half the median's 95 % interval, as a share of it */
"    is_now        INTEGER NOT NULL CHECK (is_now IN (0, 1)),"  /* the newest of its key on this machine */
"    UNIQUE (calibration, kind, name, fn, dtype, algorithm, ranks, per_node, threads, batch, m, n, k,"
"            seq, dim, bytes, dropout, beside)"
") STRICT;"
"CREATE INDEX series_now ON series (machine, kind, name, bytes) WHERE is_now = 1;"
"CREATE INDEX series_key ON series (machine, kind, name, bytes, started);"

"CREATE TABLE sample ("
"    series        INTEGER NOT NULL REFERENCES series ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"                   /* -1: the slowest rank's time */
"    i             INTEGER NOT NULL,"
"    seconds       REAL NOT NULL,"
"    PRIMARY KEY (series, rank, i)"
") STRICT, WITHOUT ROWID;"

/* A newer series takes the place of the older one of its key, and gives it back when deleted. */
"CREATE TRIGGER series_replaces AFTER INSERT ON series WHEN NEW.is_now = 1 BEGIN"
"    UPDATE series SET is_now = 0 WHERE " SAME_KEY("NEW") " AND is_now = 1 AND id <> NEW.id"
"        AND started <= NEW.started;"
"    UPDATE series SET is_now = 0 WHERE id = NEW.id AND EXISTS (SELECT 1 FROM series WHERE " SAME_KEY("NEW")
"        AND is_now = 1 AND id <> NEW.id);"
"END;"
"CREATE TRIGGER series_returns AFTER DELETE ON series WHEN OLD.is_now = 1 BEGIN"
"    UPDATE series SET is_now = 1 WHERE id = (SELECT id FROM series WHERE " SAME_KEY("OLD")
"        ORDER BY started DESC LIMIT 1);"
"END;"

"CREATE VIEW calibrations AS SELECT c.id AS calibration, datetime(c.started, 'unixepoch') AS started,"
"    ifnull(round(c.ended - c.started, 1), 'open') AS seconds, m.host, m.device, m.cpu, c.source, c.ranks,"
"    c.threads, count(s.id) AS series, sum(s.samples) AS samples, sum(s.is_now) AS series_now,"
"    c.comm_version, c.kernels_version, c.dpx_version, c.origin"
"  FROM calibration c JOIN machine m ON m.id = c.machine LEFT JOIN series s ON s.calibration = c.id"
"  GROUP BY c.id;"

/* spread: half of the range of nine samples in ten, as a share of the median. */
"CREATE VIEW measured AS SELECT s.id AS series, s.calibration, m.host, m.device, s.kind, s.name, s.fn,"
"    s.class, s.dtype, s.algorithm, s.ranks, s.per_node, s.threads, s.batch, s.m, s.n, s.k, s.seq, s.dim, s.bytes,"
"    s.dropout, s.beside, s.samples, s.median_s, s.mean_s, (s.p95_s - s.p05_s) / 2 / s.median_s AS spread, s.confidence,"
"    s.flops / s.median_s / 1e9 AS gflops, s.bytes / s.median_s / 1e9 AS gbs,"
"    round((unixepoch() - s.started) / 86400.0, 2) AS days_old"
"  FROM series s JOIN machine m ON m.id = s.machine WHERE s.is_now = 1;"

/* algbw and busbw as nccl-tests' doc/PERFORMANCE.md defines them. */
"CREATE VIEW collectives AS SELECT series, host, device, name AS op, algorithm, dtype, ranks, per_node, bytes,"
"    median_s * 1e6 AS us, bytes / median_s / 1e9 AS algbw_gbs,"
"    bytes / median_s / 1e9 * CASE name WHEN 'all_reduce' THEN 2.0 * (ranks - 1) / ranks"
"        WHEN 'all_gather' THEN 1.0 * (ranks - 1) / ranks WHEN 'reduce_scatter' THEN 1.0 * (ranks - 1) / ranks"
"        ELSE 1 END AS busbw_gbs, spread, samples, days_old"
"  FROM measured WHERE kind = 'collective' AND beside = '' ORDER BY op, algorithm, dtype, ranks, bytes;"

/* How many times longer `name` takes beside `beside` than alone. */
"CREATE VIEW overlaps AS SELECT t.name, t.beside, t.dtype, t.ranks, t.mean_s / a.mean_s AS slower,"
"    a.mean_s AS alone_s, t.mean_s AS together_s"
"  FROM measured t JOIN measured a ON a.kind = 'overlap' AND a.beside = 'alone before ' || t.beside"
"    AND a.name = t.name AND a.dtype = t.dtype AND a.ranks = t.ranks AND a.calibration = t.calibration"
"  WHERE t.kind = 'overlap';";

/* What reports show of memory: of which categories a peak consists, and how much is live entry by entry. */
static const char version_3[] =
"ALTER TABLE run ADD COLUMN available_bytes INTEGER;"   /* that schedules may allocate on a rank */

"CREATE TABLE part ("                                   /* live at the allocated peak of a rank */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    category      TEXT NOT NULL,"
"    position      INTEGER NOT NULL,"                   /* in order of appearance */
"    predicted_bytes INTEGER, bytes INTEGER,"
"    PRIMARY KEY (run, rank, category)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE moment ("                                 /* rank 0: the most live while an entry is issued */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    schedule      TEXT NOT NULL,"
"    position      INTEGER NOT NULL,"                   /* as in entry */
"    predicted_bytes INTEGER, bytes INTEGER,"
"    PRIMARY KEY (run, schedule, position)"
") STRICT, WITHOUT ROWID;"

"CREATE TRIGGER predicted_part_is_final BEFORE UPDATE OF predicted_bytes ON part BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"
"CREATE TRIGGER predicted_moment_is_final BEFORE UPDATE OF predicted_bytes ON moment BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;";

/* Fits are kept, so that one can see how good they are; written by fits.c. */
static const char version_4[] =
"CREATE TABLE fit ("
"    id            INTEGER PRIMARY KEY,"
"    calibration   INTEGER NOT NULL REFERENCES calibration ON DELETE CASCADE,"  /* after which it was made */
"    machine       INTEGER NOT NULL REFERENCES machine,"        /* the calibration's */
"    kind          TEXT NOT NULL,"                      /* as in series ... */
"    name          TEXT NOT NULL,"                      /* of a kernel: its fn */
"    class TEXT NOT NULL, dtype TEXT NOT NULL, algorithm TEXT NOT NULL, beside TEXT NOT NULL,"
"    ranks INTEGER NOT NULL, per_node INTEGER NOT NULL, threads INTEGER NOT NULL, dropout INTEGER NOT NULL,"
"    x             TEXT NOT NULL CHECK (x IN ('bytes', 'flops', 'none')),"      /* seconds = fixed_s + per_s * x */
"    fixed_s       REAL NOT NULL, per_s REAL NOT NULL,"
"    factor        REAL,"                               /* overlap: how many times longer beside `beside` */
"    from_x REAL NOT NULL, to_x REAL NOT NULL,"         /* the range of its points: elsewhere it is a guess */
"    points        INTEGER NOT NULL, samples INTEGER NOT NULL,"
"    residual      REAL NOT NULL,"      /* root mean square of fit / time - 1; x none: half of a 95 % interval */
"    worst         REAL NOT NULL,"      /* the largest |fit / time - 1| */
"    left_out      REAL,"               /* mean |error| of a point that is asked of its two neighbours */
"    spread        REAL NOT NULL,"      /* the largest of its series: half of the range of nine samples in ten */
"    UNIQUE (calibration, kind, name, class, dtype, algorithm, beside, ranks, per_node, threads, dropout, from_x)"
") STRICT;"
"CREATE INDEX fit_key ON fit (machine, kind, name);"

/* The newest of each thing. */
"CREATE VIEW fits AS SELECT f.id AS fit, f.calibration, m.host, m.device, f.kind, f.name, f.class, f.dtype,"
"    f.algorithm, f.beside, f.ranks, f.per_node, f.threads, f.dropout, f.fixed_s * 1e6 AS fixed_us,"
"    CASE WHEN f.x = 'bytes' AND f.per_s > 0 THEN 1e-9 / f.per_s END AS gbs,"
"    CASE WHEN f.x = 'flops' AND f.per_s > 0 THEN 1e-9 / f.per_s END AS gflops,"
"    f.factor, f.x, f.from_x, f.to_x, f.points, f.samples, f.residual, f.worst, f.left_out, f.spread"
"  FROM fit f JOIN machine m ON m.id = f.machine WHERE NOT EXISTS (SELECT 1 FROM fit n WHERE n.machine = f.machine"
"    AND n.kind = f.kind AND n.name = f.name AND n.class = f.class AND n.dtype = f.dtype AND n.algorithm = f.algorithm"
"    AND n.beside = f.beside AND n.ranks = f.ranks AND n.per_node = f.per_node AND n.threads = f.threads"
"    AND n.dropout = f.dropout AND (f.kind <> 'overlap' OR n.from_x = f.from_x) AND n.id > f.id);"

/* By size too; rested: with a rest before each call, compared with what ran alone in a row. */
"DROP VIEW overlaps;"
"CREATE VIEW overlaps AS SELECT t.name, t.beside, t.bytes, t.dtype, t.ranks, t.mean_s / a.mean_s AS slower,"
"    a.mean_s AS alone_s, t.mean_s AS together_s"
"  FROM measured t JOIN measured a ON a.kind = 'overlap' AND a.beside = 'alone before ' || replace(t.beside, ', rested', '')"
"    AND a.name = t.name AND a.dtype = t.dtype AND a.ranks = t.ranks AND a.bytes = t.bytes"
"    AND a.calibration = t.calibration"
"  WHERE t.kind = 'overlap' AND t.beside NOT LIKE 'alone before %';";

/* Attention of two models may read as many bytes: the number of its matrices tells them apart, which earlier
 * versions left at 0.  Of series that replaced one of another model, that one counts again.  On a host none
 * does: they were timed on a pattern in the place of weights, and in part on denormals. */
#define OLD_ATTENTION "kind = 'kernel' AND class = 'attention' AND m = 0 AND batch = 0 AND seq > 0 AND dim > 0"
static const char version_5[] =
"UPDATE series SET is_now = 0, name = name || ', of a pattern' WHERE " OLD_ATTENTION
"  AND machine IN (SELECT id FROM machine WHERE device = 'cpu');"
"UPDATE series SET batch = CAST(round(flops / ((CASE fn WHEN 'attention' THEN 4.0 ELSE 8.0 END) * seq * seq * dim)) AS INTEGER)"
"  WHERE " OLD_ATTENTION " AND machine NOT IN (SELECT id FROM machine WHERE device = 'cpu');"
"UPDATE series SET is_now = id = (SELECT o.id FROM series o WHERE " SAME_OF("o", "series")
"  ORDER BY o.started DESC, o.id DESC LIMIT 1) WHERE kind = 'kernel' AND class = 'attention' AND batch > 0;";

/* Traces of a framework's profiler.  Only a constraint changes, no row: SQLite's way to do it (lang_altertable.html, section
 * 7, the second procedure).  The index makes other connections read the schema again, and finds what traces timed. */
static const char version_6[] =
"PRAGMA writable_schema = ON;"
"UPDATE sqlite_schema SET sql = replace(sql, '''nccl-tests'')', '''nccl-tests'', ''kineto'')')"
"  WHERE type = 'table' AND name = 'calibration';"
"PRAGMA writable_schema = RESET;"
"CREATE INDEX IF NOT EXISTS series_traced ON series (machine) WHERE is_now = 1 AND threads = 0;";

/* Of the cores that were timed, the share that other processes had meanwhile; NULL: not known. */
static const char version_7[] = "ALTER TABLE calibration ADD COLUMN crowd REAL;";

/* Pipelines: which pass of which micro-step an entry is part of; where the time of each stage's step went.  Messages and
 * all-to-alls among the collectives: nccl-tests' busbw of an all-to-all is what leaves a rank, of a message all of it. */
static const char version_8[] =
"ALTER TABLE entry ADD COLUMN pass TEXT;"               /* 'forward', 'backward', 'weights', 'optimizer', 'message'; NULL: none */
"ALTER TABLE entry ADD COLUMN micro_step INTEGER;"      /* NULL: of none */
"ALTER TABLE entry ADD COLUMN met_s REAL;"              /* when all stages that take part had come; before, the rank waits */

"CREATE TABLE stage ("                                  /* of a steady step; on one rank of each stage */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    stage         INTEGER NOT NULL,"
"    rank          INTEGER NOT NULL,"
"    predicted_work_s REAL, predicted_messages_s REAL, predicted_bubble_s REAL,"        /* their sum is the step, */
"    work_s REAL, messages_s REAL, bubble_s REAL,"                                      /* that of all stages */
"    PRIMARY KEY (run, stage)"
") STRICT, WITHOUT ROWID;"
"CREATE TRIGGER predicted_stage_is_final BEFORE UPDATE OF predicted_work_s, predicted_messages_s, predicted_bubble_s ON stage"
" BEGIN SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"

"CREATE VIEW stages AS SELECT run, stage, rank, predicted_work_s, work_s, predicted_messages_s, messages_s, predicted_bubble_s,"
"    bubble_s, predicted_bubble_s / (predicted_work_s + predicted_messages_s + predicted_bubble_s) AS predicted_bubble,"
"    bubble_s / (work_s + messages_s + bubble_s) AS bubble FROM stage;"

"DROP VIEW entries;"
"CREATE VIEW entries AS SELECT run, step, rank, position, schedule, stream, kind, what, unit, iteration, pass, micro_step,"
"    predicted_end_s - predicted_start_s AS predicted_s, end_s - start_s AS measured_s,"
"    (end_s - start_s) - (predicted_end_s - predicted_start_s) AS late_s,"
"    predicted_start_s, predicted_end_s, start_s, end_s, met_s FROM entry;"

"DROP VIEW collectives;"
"CREATE VIEW collectives AS SELECT series, host, device, name AS op, algorithm, dtype, ranks, per_node, bytes,"
"    median_s * 1e6 AS us, bytes / median_s / 1e9 AS algbw_gbs,"
"    bytes / median_s / 1e9 * CASE name WHEN 'all_reduce' THEN 2.0 * (ranks - 1) / ranks"
"        WHEN 'all_gather' THEN 1.0 * (ranks - 1) / ranks WHEN 'reduce_scatter' THEN 1.0 * (ranks - 1) / ranks"
"        WHEN 'all_to_all' THEN 1.0 * (ranks - 1) / ranks ELSE 1 END AS busbw_gbs, spread, samples, days_old"
"  FROM measured WHERE kind = 'collective' AND beside = '' ORDER BY op, algorithm, dtype, ranks, per_node, bytes;"

"CREATE VIEW messages AS SELECT series, host, device, CASE per_node WHEN 1 THEN 'other node' ELSE 'same node' END AS pair,"
"    dtype, bytes, median_s * 1e6 AS us, bytes / median_s / 1e9 AS gbs, spread, samples, days_old"
"  FROM measured WHERE kind = 'collective' AND name = 'send' ORDER BY pair, bytes;";

/* Runs of a framework (dpxrun --engine): what each of its ranks recorded. */
static const char version_9[] =
"CREATE TABLE rank_phase ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    phase         TEXT NOT NULL,"                      /* 'init', 'first', 'second', 'steady' */
"    position      INTEGER NOT NULL,"
"    predicted_allocated_bytes INTEGER,"                /* peaks in that phase */
"    allocated_bytes INTEGER, active_bytes INTEGER, reserved_bytes INTEGER,"
"    retries       INTEGER,"                            /* times that the allocator freed its cache, since the start */
"    PRIMARY KEY (run, rank, phase)"
") STRICT, WITHOUT ROWID;"
"CREATE TRIGGER predicted_rank_phase_is_final BEFORE UPDATE OF predicted_allocated_bytes ON rank_phase BEGIN"
"    SELECT RAISE(ABORT, 'a prediction is not changed afterwards'); END;"

"CREATE TABLE rank_step ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    step          INTEGER NOT NULL,"                   /* 1, 2, ... */
"    loss          REAL, seconds REAL NOT NULL,"
"    PRIMARY KEY (run, rank, step)"
") STRICT, WITHOUT ROWID;"

"CREATE TABLE rank_part ("                              /* of the step that the framework's profiler traced */
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    step_s        REAL NOT NULL,"                      /* the sum of the others */
"    compute_s     REAL NOT NULL,"                      /* kernels of forward and backward run */
"    exposed_s     REAL NOT NULL,"                      /* a collective runs, and no kernel beside it */
"    optimizer_s   REAL NOT NULL,"
"    idle_s        REAL NOT NULL,"                      /* nothing runs: nothing was issued */
"    PRIMARY KEY (run, rank)"
") STRICT, WITHOUT ROWID;";

/* What saving and loading a run's state took (dpxrun --checkpoint-every, --resume). */
static const char version_10[] =
"CREATE TABLE checkpoint ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    step          INTEGER NOT NULL,"                   /* the state after this step ... */
"    loaded        INTEGER NOT NULL CHECK (loaded IN (0, 1)),"      /* ... was loaded, and the run went on; 0: it was saved */
"    predicted_bytes INTEGER NOT NULL, bytes INTEGER NOT NULL,"     /* of all ranks */
"    predicted_s   REAL,"                               /* by the rates of the nodes' disks; NULL: they are not known */
"    seconds       REAL NOT NULL,"                      /* until every rank was done */
"    PRIMARY KEY (run, step, loaded)"
") STRICT, WITHOUT ROWID;"
"CREATE VIEW checkpoints AS SELECT run, step, CASE loaded WHEN 1 THEN 'loaded' ELSE 'saved' END AS did, predicted_bytes, bytes,"
"    predicted_s, seconds, bytes / seconds / 1e9 AS gbs FROM checkpoint ORDER BY run, step, loaded DESC;";

/* Of the GPU of each rank of a framework's run, while its steps ran. */
static const char version_11[] =
"CREATE TABLE rank_clock ("
"    run           INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,"
"    rank          INTEGER NOT NULL,"
"    sm_mhz        INTEGER, sm_most_mhz INTEGER,"       /* the median, and the most that this GPU can */
"    memory_mhz    INTEGER, memory_most_mhz INTEGER,"
"    PRIMARY KEY (run, rank)"
") STRICT, WITHOUT ROWID;";

static const char *const versions[] = { version_1, version_2, version_3, version_4, version_5, version_6, version_7, version_8, version_9, version_10,
                                        version_11 };

/* A schema that had no fits may hold calibrations. */
static int fits_for_older(struct db *db, int64_t from)
{
    return from >= 2 && from < 4 ? fits_write_older(db) : 0;
}

const struct schema schema_now = { versions, sizeof versions / sizeof *versions, fits_for_older };

/* Which schema the file has; -1 with the reason reported where it is not ours. */
static int version_of(struct db *db, int64_t *version)
{
    int64_t application, tables;

    if (db_value(db, "PRAGMA application_id", &application) < 0
        || db_value(db, "PRAGMA user_version", version) < 0
        || db_value(db, "SELECT count(*) FROM sqlite_schema", &tables) < 0)
        return db_fail(db, "reading its version");
    if (application != SCHEMA_APPLICATION && (application || *version || tables))
        return fail("%s: a database of another program; nothing was changed", db->path);
    return 0;
}

static int apply(struct db *db, const struct schema *want, int64_t from)
{
    char mark[96];
    int rc = 0;

    for (int64_t v = from; rc == 0 && v < want->version; v++)
        rc = db_exec(db, want->steps[v]);
    snprintf(mark, sizeof mark, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             SCHEMA_APPLICATION, want->version);
    return rc < 0 ? -1 : db_exec(db, mark);
}

/* Somebody else may do the same at this moment: what counts is the version under the lock. */
static int upgrade(struct db *db, const struct schema *want)
{
    int64_t version;
    int rc;

    if (db_begin(db) < 0)
        return -1;
    rc = db_value(db, "PRAGMA user_version", &version);
    if (rc == 0 && version < want->version)
        rc = apply(db, want, version);
    if (rc == 0 && version < want->version && want->after)
        rc = want->after(db, version);
    return db_end(db, rc);
}

int schema_upgrade(struct db *db, const struct schema *want)
{
    int64_t version;

    if (version_of(db, &version) < 0)
        return -1;
    if (version > want->version)
        return fail("%s: has schema %" PRId64 ", made by a newer dpx; this one knows up to %d; "
                    "use that dpx or another file", db->path, version, want->version);
    if (version == want->version)
        return 0;
    if (db->reader)
        return fail("%s: has schema %" PRId64 " and needs %d: run dpxrun or dpxcal on it once, which "
                    "brings it up to date", db->path, version, want->version);
    if (upgrade(db, want) < 0)
        return db_fail(db, "bringing schema %" PRId64 " to %d", version, want->version);
    return 0;
}
