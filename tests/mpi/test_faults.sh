#!/bin/sh
# tests/mpi/test_faults.sh -- what goes wrong ends in one line that names the culprit, the exit
# status of the contract, and nothing left behind: no process, no shared memory, no half of a file;
# what the database had, it has.  Ranks are killed and stopped at moments that are waited for (a
# file appears, a pipe is read), not after a number of seconds.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/check.sh
. tests/check.sh
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
dir=$(mktemp -d) || exit 1
full=$dir/full
leave() {
    for p in $(ours); do kill -9 "$p" 2>/dev/null; done
    umount "$full" 2>/dev/null
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM

# A copy of the program, so that processes which run it are ours.
mkdir "$dir/shared" "$dir/session" "$full" || exit 1
cp "$B/dpxrun" "$dir/dpxrun" || exit 1
export OMPI_MCA_btl_vader_backing_directory="$dir/shared" OMPI_MCA_btl_sm_backing_directory="$dir/shared"
export OMPI_MCA_orte_tmpdir_base="$dir/session" PRTE_MCA_prte_tmpdir_base="$dir/session"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
case $(mpirun --version 2>/dev/null) in
*'Open MPI'*' 4.'*) many=--oversubscribe ;;
*)                  many='--map-by :OVERSUBSCRIBE' ;;
esac
model=tests/golden/parity/llama

plan() {        # STRATEGY MODEL
    echo "{\"dpx_plan\": 1, \"model\": \"$2\", \"cluster\": \"localhost:2\", \"kernels\": \"dpx\", \"seq\": 24,
        \"micro_batch\": 1, \"strategy\": \"$1\", \"dialect\": \"torch\", \"precision\": \"fp32\"}"
}
plan fsdp "$model/config.json" >"$dir/plan.json"
plan ddp "$model/config.json" >"$dir/ddp.json"
sed 's/"num_hidden_layers": 3/"num_hidden_layers": 2/; s/"vocab_size": 97/"vocab_size": 100000/
     s/"hidden_size": 36/"hidden_size": 96/' "$model/config.json" >"$dir/config.json"
plan fsdp "$dir/config.json" >"$dir/large.json"        # 80 MB of weights: saving takes a while

# ---- processes ----

ours() {
    find /proc -maxdepth 2 -name exe \( -lname "$dir/dpxrun" -o -lname '*/orterun' -o -lname '*/prterun' \
        -o -lname '*/orted' \) 2>/dev/null | while IFS=/ read -r _ _ p _; do
        grep -qsz "^OMPI_MCA_orte_tmpdir_base=$dir/session" "/proc/$p/environ" && echo "$p"
    done
}

# The process of a rank.
rank() {
    for p in $(ours); do
        grep -qsz "^OMPI_COMM_WORLD_RANK=$1\$" "/proc/$p/environ" && echo "$p"
    done
}

hundredths() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}"
}

# await SECONDS COMMAND...: until it succeeds.
await() {
    limit=$(($(hundredths) + $1 * 100))
    shift
    until "$@"; do
        [ "$(hundredths)" -lt "$limit" ] || return 1
        sleep 0.05
    done
}
exists() { [ -e "$1" ]; }
is_there() { [ -n "$(rank "$1")" ]; }
ended() { [ -s "$dir/status" ]; }
none_left() { [ -z "$(ours)" ]; }

# ---- a run ----

start() {       # PROGRAM ARGUMENT...: in the background
    rm -f "$dir/status" "$dir/grads"
    : >"$dir/late"
    {
        "$@" >"$dir/out" 2>"$dir/said" </dev/null
        echo $? >"$dir/status"
    } >/dev/null &
}

# One that goes on, in the middle of its steps.
start_long() {
    # The shell has what runs in the background ignore SIGINT.
    start env --default-signal=INT "$dir/dpxrun" "$dir/plan.json" --steps 100000000 --save-grads "$dir/grads" --db "$dir/db" "$@"
    await 30 exists "$dir/grads" || echo 'no first step in 30 s' >"$dir/late"
}

# Complaints about how the run ended: within SECONDS, with STATUS, having said one line that
# matches CULPRIT ("": nothing at all); and about what it left.
judge() {       # SECONDS STATUS CULPRIT
    cat "$dir/late"
    await "$1" ended || echo "still running after $1 s"
    await 3 none_left || echo "processes left: $(ours | tr '\n' ' ')"
    for p in $(ours); do kill -9 "$p"; done
    ended && [ "$(cat "$dir/status")" != "$2" ] && echo "exit status $(cat "$dir/status") instead of $2"
    find "$dir/shared" "$dir/session" \( -type f -o -name 'dpx.*' \) | sed 's/^/left: /'
    rm -rf "$dir/shared/"* "$dir/session/"*
    sed -i '/^warning: /d' "$dir/said"
    # Where the test starts mpirun itself, or kills dpxrun, remarks of others are theirs.
    [ "$4" ] && sed -i '/^dpx: /!d' "$dir/said"
    [ "$(wc -l <"$dir/said")" = "$([ -z "$3" ]; echo $?)" ] && { [ -z "$3" ] || grep -q "^dpx: .*$3" "$dir/said"; } ||
        { echo "said, instead of one line with '$3':"; head -n 20 "$dir/said"; }
}

kill_rank() {
    for p in $(rank "$2"); do kill "-$1" "$p"; done
}

# ---- ranks that are killed ----

start "$dir/dpxrun" "$dir/plan.json" --steps 100000000 --no-db
await 30 is_there 1
kill_rank 9 1
check 'a rank killed while ranks find each other ends the run' "$(judge 10 1 'rank 1 .*signal 9')"

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

# A pipe that nobody empties: rank 0 is in the middle of writing, rank 1 waits for it.
mkfifo "$dir/pipe"
start "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$dir/pipe"
exec 3<"$dir/pipe"
dd bs=8 count=1 <&3 >"$dir/begun" 2>/dev/null
kill_rank 9 1
check 'and one killed while weights are saved' "$(judge 10 1 'rank 1 .*signal 9')"
exec 3<&-

echo good >"$dir/weights"
start env DPX_DIE=1 LD_PRELOAD="$B/tests/mpi/pmpi_die.so" "$dir/dpxrun" "$dir/large.json" --steps 1 --no-db --save "$dir/weights"
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
    check "rank $r stopped in the middle of the steps is found and named" "$(judge 9 1 "rank $r .*stopped")"
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

mpirun_of() {
    for p in $(ours); do
        case $(readlink "/proc/$p/exe") in */orterun | */prterun) echo "$p" ;; esac
    done
}
launcher() { sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$(mpirun_of)/stat"; }         # its parent
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

# ---- launchers ----

start env PATH=/nowhere "$dir/dpxrun" "$dir/plan.json" --no-db
check 'without mpirun it says what to install' "$(judge 10 1 'no mpirun.*openmpi-bin')"

# shellcheck disable=SC2086
start mpirun $many -n 3 "$dir/dpxrun" "$dir/plan.json" --no-db
check 'another number of ranks than the plan has is refused' "$(judge 10 2 'for 2 ranks, 3 were started' mpirun)"
# shellcheck disable=SC2086
start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db : -n 1 "$dir/dpxrun" "$dir/ddp.json" --no-db
check 'ranks with different plans are refused' "$(judge 10 2 'rank 1 has the plan.s.strategy "ddp", rank 0 has "fsdp"' mpirun)"

# apart CULPRIT ARGUMENT...: complaints unless two ranks, the second with these arguments as well, are refused.
apart() {
    culprit=$1
    shift
    # shellcheck disable=SC2086
    start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" $common --no-db : -n 1 "$dir/dpxrun" "$dir/plan.json" $common --no-db "$@"
    judge 10 2 "rank 1 has $culprit: all ranks must" mpirun
}
common=
check 'so are ranks with different options' "$(
    apart '--lr 0.001, rank 0 has 0.0006' --lr 1e-3
    apart '--seed 2, rank 0 has 1' --seed 2
    apart '--steps 11, rank 0 has 10' --steps 11
    apart '--save true, rank 0 has false' --save "$dir/w")"
# Files of one size, which differ in one bit of one weight and in one byte.
cp $model/init.safetensors "$dir/init.safetensors"
size=$(wc -c <"$dir/init.safetensors")
{ head -c $((size - 4)) "$dir/init.safetensors"; printf '\001'; tail -c 3 "$dir/init.safetensors"; } >"$dir/other.safetensors"
cmp -s "$dir/init.safetensors" "$dir/other.safetensors" && echo 'the files are the same'
seq 2000 >"$dir/data"
sed 's/^77$/78/' "$dir/data" >"$dir/other"
check 'or different files of one size' "$(
    common="--init $dir/init.safetensors"
    apart "--init.hash \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"" --init "$dir/other.safetensors"
    common="--data $dir/data"
    apart "--data.hash \"[0-9a-f]*\", rank 0 has \"[0-9a-f]*\"" --data "$dir/other"
    apart '--data.bytes [0-9]*, rank 0 has [0-9]*' --data "$dir/plan.json")"
check 'files of two names that hold the same are no difference' "$(
    cp "$dir/init.safetensors" "$dir/copy.safetensors"
    # shellcheck disable=SC2086
    start mpirun $many -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db --steps 1 --init "$dir/init.safetensors" \
        : -n 1 "$dir/dpxrun" "$dir/plan.json" --no-db --steps 1 --init "$dir/copy.safetensors"
    judge 20 0 '' mpirun)"

# ---- what it is given ----

refused() {     # WHAT CULPRIT ARGUMENT...
    what=$1 culprit=$2
    shift 2
    start "$dir/dpxrun" "$@" --no-db
    check "$what is refused" "$(judge 20 2 "$culprit")"
}
head -c 20000 $model/init.safetensors >"$dir/short.safetensors"
refused 'a truncated safetensors file' 'short.safetensors: ' "$dir/plan.json" --init "$dir/short.safetensors"
refused 'one of another model' "init.safetensors: .*" "$dir/large.json" --init $model/init.safetensors
refused 'data that is not there' 'nowhere: No such file' "$dir/plan.json" --data "$dir/nowhere"
refused 'a folder as data' "$dir" "$dir/plan.json" --data "$dir"
head -c 100 "$dir/plan.json" >"$dir/half.json"
refused 'half a plan' 'half.json:1:' "$dir/half.json"
refused 'a place that cannot be written to' 'nowhere/w: ' "$dir/plan.json" --save "$dir/nowhere/w"
refused 'a folder in place of a file' 'is a folder' "$dir/plan.json" --save "$dir"
sed 's/localhost:2/localhost:3/' "$dir/plan.json" >"$dir/three.json"
refused 'halving among three ranks' 'power of two' "$dir/three.json" --algorithm halving

# ---- what is not finite ----

start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --lr 0 --init $model/init.safetensors --save "$dir/w.safetensors"
await 20 ended
# The last four bytes of the file are the last element of its last tensor.
size=$(wc -c <"$dir/w.safetensors")
last=$(head -c 20000 "$dir/w.safetensors" | tr -d '\000' | grep -ao '"[a-z0-9_.]*":{"dtype"' | tail -n 1 | cut -d '"' -f 2)
end_with() { printf '%b' "$1" | dd of="$dir/w.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null; }
end_with '\0000\0000\0300\0177'                 # 0x7fc00000: NaN
start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --init "$dir/w.safetensors"
check 'a NaN in --init is named by tensor, and by the rank that has loaded it' \
    "$(judge 20 1 "rank 1: .*w.safetensors: tensor \"$last\" is NaN or infinite")"
start "$dir/dpxrun" "$dir/plan.json" --steps 1 --no-db --init "$dir/w.safetensors" --no-check-for-nan
check 'and goes through where that is wanted, with a warning' "$(judge 20 0 'NaN or infinite from step 1')"
end_with '\0377\0377\0177\0177'                 # 0x7f7fffff: the largest number, whose products overflow
start "$dir/dpxrun" "$dir/plan.json" --steps 3 --no-db --init "$dir/w.safetensors"
check 'a gradient that overflows is named, with its step' \
    "$(judge 20 1 "step 1: the loss is .*: first in backward: the gradient of $last ")"
# Weight decay of 3e38 * 10: no weight is left finite, the first of the model not either.
start "$dir/dpxrun" "$dir/plan.json" --steps 3 --no-db --lr 3e38 --weight-decay 10
check 'weights that an update has ruined are named at the next step' \
    "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"
start "$dir/dpxrun" "$dir/ddp.json" --steps 3 --db "$dir/nan.db" --lr 3e38 --weight-decay 10
check 'so they are by another strategy' "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"

plan zero2 "$model/config.json" | sed 's/"torch"/"deepspeed"/; s/"fp32"/"bf16"/' >"$dir/ds.json"
start "$dir/dpxrun" "$dir/ds.json" --steps 3 --no-db --lr 3e38 --weight-decay 10
check 'and where the overflow check skips the step' "$(judge 20 1 'step 2: the loss is .*weights of model.embed_tokens.weight (element 0, rank 0)')"

# ---- the database ----

sql() {
    if command -v sqlite3 >/dev/null; then
        sqlite3 "$1" "$2"
    else
        python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row, sep="|")' "$1" "$2"
    fi
}
if sql "$dir/db" 'SELECT 1' >/dev/null 2>&1; then
    check 'the database is whole after all that' "$(sql "$dir/db" 'PRAGMA integrity_check' | grep -vx ok)"
    # mpirun's SIGTERM leaves it milliseconds: only what it ended itself is sure to be there.
    check 'where rank 0 could still do it, the reason is in it' "$(sql "$dir/db" "
        SELECT reason FROM run WHERE outcome = 'failed'" | grep -q 'rank 1.*not answered' ||
        sql "$dir/db" 'SELECT id, outcome, reason FROM run')"
    check 'the step that diverged is in it as the reason' "$(sql "$dir/nan.db" "
        SELECT reason FROM run WHERE outcome = 'failed'" | grep -q 'step 2: the loss is' || sql "$dir/nan.db" 'SELECT outcome, reason FROM run')"
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
