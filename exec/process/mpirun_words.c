/* mpirun_words.c -- mpirun's stderr line by line: what ranks wrote passes, its blocks about ended ranks do not. */
#include "exec/process/mpirun_words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

/* In the words of Open MPI 4.1 (orte/tools/orterun/help-orterun.txt, ompi/mpi/help-mpi-api.txt) and
 * of PRRTE 3, which is the launcher of 5.0 (src/tools/prte/help-prun.txt). */
static const char *const ended_blocks[] = {
    "MPI_ABORT was invoked on rank",            /* a rank's own, while others still run */
    "Primary job  terminated normally, but",
    "detected that one or more processes exited with non-zero status",
    "noticed that process rank",
    "has exited due to process rank",
    "has exited due to a process exiting without",
    "noticed that the job aborted",
    "has exited before it received notification that all",
    "is in the process of killing a job",
    "An MPI communication peer process has unexpectedly disconnected",
};
/* Beginnings of the lines of a rank's own block, which stand alone where two ranks abort at once: 4.1 then writes one
 * block into the other. */
static const char *const abort_lines[] = {
    "MPI_ABORT was invoked on rank ", "with errorcode ", "NOTE: invoking MPI_ABORT causes ", "You may or may not see output from other",
    "exactly when Open MPI kills them.",
};
static const char *const ended_lines[] = {
    "Set MCA parameter \"orte_base_help_aggregate\" to 0",
    "has sent help message help-",
    "have sent help message help-",
    "abort is already in progress...hit ctrl-c again",
    "Forcibly killing job...",
    ": Forwarding signal ",
    "/util/show_help.c at line",        /* 4.1: two ranks that abort at once spoil each other's block */
    "Read -1, expected ",               /* 4.1, btl vader: a rank that was being read from is gone */
    "/ptl_base_connection_hdlr.c at line",      /* PMIx 4: a rank that was being welcomed is gone */
    "total processes failed to start",
    "total process failed to start",
    "total processes killed (some possibly by",
    "total process killed (some possibly by",
};

/* 4.1 and PMIx 4: the reader of mpirun's own texts ends it with 2.  Seen where a rank was killed while it was welcomed, once in some
 * hundred: two of its threads use that reader. */
static const char own_failure[] = "input in flex scanner failed\n";

static bool has_one_of(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* The first n characters of a line; of one that is not whole yet, whether it may become one. */
static bool begins_abort(const char *line, size_t n, bool whole)
{
    for (size_t i = 0; i < sizeof abort_lines / sizeof *abort_lines; i++) {
        size_t k = strlen(abort_lines[i]);
        if (strncmp(line, abort_lines[i], n < k ? n : k) == 0 && (n >= k || !whole))
            return true;
    }
    return false;
}

/* A rank's "dpx: ..." is what a document of this process says, too. */
static void keep(const char *bytes, size_t n)
{
    char line[1024];

    if (n > 6 && n < sizeof line && strncmp(bytes, "dpx: ", 5) == 0 && bytes[n - 1] == '\n') {
        memcpy(line, bytes + 5, n - 6);
        line[n - 6] = '\0';
        fail_copied(line);
    }
}

static void pass(const struct mpirun_words *w, const char *bytes, size_t n)
{
    keep(bytes, n);
    while (n) {
        ssize_t k = write(w->to, bytes, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return;             /* stderr has no reader any more */
        bytes += k;
        n -= (size_t)k;
    }
}

static void look_for_signal(struct mpirun_words *w)
{
    const char *at = strstr(w->block, "process rank ");
    int rank, signal;
    char host[256];

    if (!at || w->signal)
        return;
    if (sscanf(at, "process rank %d with PID %*d on node %255s exited on signal %d",
               &rank, host, &signal) == 3) {
        w->killed_rank = rank;
        w->signal = signal;
        memcpy(w->killed_host, host, sizeof host);
    }
}

static bool is_rule(const char *line)
{
    size_t n = strspn(line, "-");

    return n >= 70 && (line[n] == '\n' || line[n] == '\r' || line[n] == '\0');
}

/* Its line, or the first n characters of it. */
static bool begins_own_failure(const char *line, size_t n) { return n < sizeof own_failure && strncmp(line, own_failure, n) == 0; }

static bool is_ours(const char *line) { return strncmp(line, "dpx: ", 5) == 0; }

/* Does a held block say nothing but that a rank aborted? */
static bool says_nothing(const struct mpirun_words *w)
{
    bool nothing = true;

    for (const char *line = w->block; *line; line += strcspn(line, "\n"), line += *line == '\n')
        nothing &= is_rule(line) || *line == '\n' || is_ours(line) || begins_abort(line, strlen(line), true);
    return nothing;
}

/* What ranks of dpx wrote into a block that is dropped. */
static void pass_ours(const struct mpirun_words *w)
{
    for (const char *line = w->block; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (is_ours(line))
            pass(w, line, strcspn(line, "\n") + 1);
}

static void end_block(struct mpirun_words *w)
{
    w->block[w->nblock] = '\0';
    if (has_one_of(w->block, ended_blocks, sizeof ended_blocks / sizeof *ended_blocks)) {
        w->ended |= !strstr(w->block, ended_blocks[0]);
        look_for_signal(w);
        w->aborted |= strstr(w->block, ended_blocks[0]) != NULL;
        pass_ours(w);
    } else if (says_nothing(w))
        pass_ours(w);
    else
        pass(w, w->block, w->nblock);
    w->nblock = 0;
    w->in_block = false;
}

/* "[host:pid] *** Process received signal ***" and what follows. */
static bool is_trace(const struct mpirun_words *w)
{
    const char *at = w->ending && w->line[0] == '[' ? strstr(w->line, "] ") : NULL;

    return at && (strncmp(at, "] ***", 5) == 0 || strncmp(at, "] Signal", 8) == 0 ||
                  strncmp(at, "] Failing at", 12) == 0 || strncmp(at, "] [", 3) == 0);
}

static void hold(struct mpirun_words *w)
{
    if (w->nblock + w->nline >= sizeof w->block) {      /* longer than any that is dropped */
        pass(w, w->block, w->nblock);
        w->nblock = 0;
    }
    memcpy(w->block + w->nblock, w->line, w->nline);
    w->nblock += w->nline;
}

static void end_line(struct mpirun_words *w)
{
    bool rule;

    w->line[w->nline] = '\0';
    rule = is_rule(w->line);
    if (!w->open && strcmp(w->line, own_failure) == 0)
        w->failed = true;
    else if (rule || w->in_block)
        hold(w);
    else if (w->open)
        pass(w, w->line, w->nline);
    else if (begins_abort(w->line, w->nline, true))
        w->aborted = true;
    else if (!(w->aborted && w->line[0] == '\n') && !is_trace(w) &&
             !has_one_of(w->line, ended_lines, sizeof ended_lines / sizeof *ended_lines))
        pass(w, w->line, w->nline);
    w->nline = 0;
    w->open = false;
    if (rule && w->in_block)
        end_block(w);
    else if (rule)
        w->in_block = true;
}

void mpirun_words_add(struct mpirun_words *w, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* PRRTE ends a block with the end of its string. */
        if (bytes[i] == '\0')
            continue;
        w->line[w->nline++] = bytes[i];
        if (bytes[i] == '\n' || w->nline == sizeof w->line - 1)
            end_line(w);
    }
    /* A progress line has no end; mpirun's own come whole. */
    if (w->nline && !w->in_block && w->line[0] != '-' && w->line[0] != '[' && !begins_abort(w->line, w->nline, false) &&
        !begins_own_failure(w->line, w->nline)) {
        pass(w, w->line, w->nline);
        w->nline = 0;
        w->open = true;
    }
}

void mpirun_words_flush(struct mpirun_words *w)
{
    w->line[w->nline] = '\0';
    w->block[w->nblock] = '\0';
    if (w->nline > 0 || !says_nothing(w))
        pass(w, w->block, w->nblock);
    else
        pass_ours(w);
    if (!is_trace(w))
        pass(w, w->line, w->nline);
    w->nblock = w->nline = 0;
    w->in_block = false;
}
