#!/bin/sh
# tests/mpi/test_faults.sh -- what goes wrong ends in one line that names the culprit, the exit
# status of the contract, and nothing left behind: no process, no shared memory, no half of a file;
# what the database had, it has.  Ranks are killed and stopped at moments that are waited for (a
# file appears, a pipe is read), not after a number of seconds.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/mpi/faults.sh
. tests/mpi/faults.sh

# ---- ranks that are killed ----

start "$dir/dpxrun" "$dir/plan.json" --steps 100000000 --no-db
await 30 is_there 1
kill_rank 9 1
check 'a rank killed while ranks find each other ends the run' "$(judge 10 1 'rank 1 .*signal 9')"

# Open MPI 4.1 waits for ever then; dpxrun gives it five seconds.  Once in some hundred runs it fails itself before it has said who ended.
dying() { start env "$1=1" ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" LD_PRELOAD="$B/tests/mpi/pmpi_die.so" "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$dir/weights"; }
dying DPX_DIE_WELCOMED
check 'so does one killed between its first message to mpirun and the answer' "$(judge 20 1 '\(rank 1 .*signal 9\|mpirun failed when it was to say which\)')"

for r in 0 1; do
    start_long
    kill_rank 9 $r
    check "so does rank $r killed in the middle of the steps" "$(judge 10 1 "rank $r .*signal 9")"
done

start_long
kill_rank STOP 0
sleep 0.3                               # rank 1 now waits for it in a collective
kill_rank 9 1
check 'and one killed in a collective' "$(judge 10 1 'rank 1 .*signal 9')"

# A pipe without a reader: rank 0 is in the middle of writing, rank 1 waits for it.
mkfifo "$dir/pipe"
start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$dir/pipe"
exec 3<"$dir/pipe"
dd bs=8 count=1 <&3 >"$dir/begun" 2>/dev/null
kill_rank 9 1
check 'and one killed while weights are saved' "$(judge 10 1 'rank 1 .*signal 9')"
exec 3<&-

echo good >"$dir/weights"
dying DPX_DIE
check 'and one killed so that MPI returns an error to rank 0' "$(judge 20 1 'rank 1 .*signal 9'; echo good | cmp - "$dir/weights")"
rm -f "$dir/weights"

# Rank 0 writes a file without a name (where the file system has none: with this one).
being_saved() {
    [ -e "$dir/weights.dpx-tmp" ] || find "/proc/$(rank 0)/fd" -lname "$dir/#* (deleted)" 2>/dev/null | grep -q .
}
echo good >"$dir/real"
ln -s real "$dir/weights"
start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$dir/weights"
await 40 being_saved
kill_rank 9 0
check 'rank 0 killed while it writes' "$(judge 10 1 'rank 0 .*signal 9')"
check 'leaves what was there before, behind a link too' "$(echo good | cmp - "$dir/real"
    [ -L "$dir/weights" ] || echo 'the link is gone')"
rm -f "$dir/weights.dpx-tmp"

# ---- ranks that are stopped ----

export DPX_TIMEOUT=3
for r in 0 1; do
    start_long
    kill_rank STOP $r
    check "rank $r stopped in the middle of the steps is found and named" "$(judge 12 1 "rank $r .*stopped")"
done
start "$dir/dpxrun" "$dir/plan.json" --steps 100000000 --no-db
await 30 is_there 1
kill_rank STOP 1
check 'one stopped at its start is missed' "$(judge 20 1 'stopped' mpirun)"
unset DPX_TIMEOUT

# shellcheck disable=SC2086
start env DPX_TIMEOUT=3 mpirun $many -n 2 "$B/tests/mpi/mpi_alone"
check 'a rank that waits for one that has ended its run is named' "$(judge 15 1 'rank 0 has ended .* on rank 1 ' mpirun)"

# ---- signals to dpxrun ----

for signal in INT TERM; do
    start_long
    kill -$signal "$(launcher)"
    check "SIG$signal ends all ranks, quietly" "$(judge 10 $([ $signal = INT ] && echo 130 || echo 143) '')"
done
start_long
kill -9 "$(launcher)"
check 'so does SIGKILL' "$(judge 10 137 '' shell)"

# ---- mpirun that is killed ----

start_long
kill -9 "$(mpirun_of)"
check 'mpirun killed in the middle of the steps leaves nothing behind' "$(judge 10 1 'mpirun was killed by signal 9')"
start_long
kill_rank STOP 0
kill_rank STOP 1
kill -9 "$(mpirun_of)"
check 'nor does it with ranks that are stopped' "$(judge 10 1 'mpirun was killed by signal 9')"
mkdir "$dir/shared/dpx.others1" "$dir/session/dpx.others2"
: >"$dir/shared/vader_segment.other.0.1.0"
start_long
kill -9 "$(mpirun_of)"
await 10 ended
check 'and nothing of another job is touched' "$(
    for f in shared/dpx.others1 session/dpx.others2 shared/vader_segment.other.0.1.0; do
        [ -e "$dir/$f" ] || echo "$f is gone"
    done)"
rm -rf "$dir/shared/"* "$dir/session/"*

# ---- output that is lost ----

start sh -c '"$@" >/dev/full' - "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --json
check 'a result that standard output does not take is an error' "$(judge 20 1 'standard output: No space left')"
start sh -c '"$@" >&-' - "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db
check 'so is a closed one' "$(judge 20 1 'standard output is closed')"
start sh -c '{ "$@"; echo $? >"$0"; } | :' "$dir/code" "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db
check 'and a reader that goes away' "$(judge 20 0 'standard output: Broken pipe'; [ "$(cat "$dir/code")" = 1 ] || cat "$dir/code")"
start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --json
check 'a result arrives whole' "$(judge 20 0 ''; tail -n 1 "$dir/out" | grep -vx '}')"
! can_hold || hold_answer "$dir/out" dpxrun

# ---- the database ----

if sql "$dir/db" 'SELECT 1' >/dev/null 2>&1; then
    check 'the database is whole after all that' "$(sql "$dir/db" 'PRAGMA integrity_check' | grep -vx ok)"
    # mpirun's SIGTERM leaves it milliseconds: only what it ended itself is sure to be there.
    check 'where rank 0 could still do it, the reason is in it' "$(sql "$dir/db" "
        SELECT reason FROM run WHERE outcome = 'failed'" | grep -q 'rank 1.*not answered' ||
        sql "$dir/db" 'SELECT id, outcome, reason FROM run')"
    check 'what was predicted was there first' "$(sql "$dir/db" \
        'SELECT id FROM run WHERE id NOT IN (SELECT run FROM prediction)')"
else
    skip 'the database is whole after all that' 'neither sqlite3 nor python3 reads it'
fi

# ---- a full disk ----

if mount -t tmpfs -o size=2m none "$full" 2>/dev/null; then
    start "$dir/dpxrun" "$dir/plan.json" --steps 2 --db "$full/db"
    check 'a run is recorded' "$(judge 20 0 '')"
    dd if=/dev/zero of="$full/filler" bs=4k 2>/dev/null
    start "$dir/dpxrun" "$dir/plan.json" --steps 2 --db "$full/db"
    check 'a disk that is full when the run begins' "$(judge 20 1 "full/db: ")"
    rm "$full/filler"
    start_long --db "$full/db"
    dd if=/dev/zero of="$full/filler" bs=4k 2>/dev/null
    check 'or in the middle of it' "$(judge 20 1 "full/db: ")"
    rm "$full/filler"
    check 'leaves the earlier run as it was' "$(sql "$full/db" "SELECT outcome FROM run LIMIT 1" | grep -vx finished
        sql "$full/db" 'PRAGMA integrity_check' | grep -vx ok)"
    rm -f "$full"/db*
    echo good >"$full/weights"
    start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$full/weights"
    check 'a disk that is full at --save' "$(judge 30 1 'weights.*No space left')"
    check 'keeps what was there before, and no half of a file' "$(echo good | cmp - "$full/weights"
        find "$full" -name '*tmp*')"
    ln -s weights "$full/link"
    start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$full/link"
    check 'so it is behind a symbolic link' "$(judge 30 1 'link.*No space left'
        echo good | cmp - "$full/weights"
        find "$full" -name '*tmp*')"
else
    skip 'a full disk' 'mounting a small one needs root'
fi
finish
