# tests/mpi/faults.sh -- for scripts that make runs fail: plans, runs in the background, and judge(), which looks at how one
# ended and what it left.  Sourced from the root of the tree.
# shellcheck shell=sh
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

mpirun_of() {
    for p in $(ours); do
        case $(readlink "/proc/$p/exe") in */orterun | */prterun) echo "$p" ;; esac
    done
}
launcher() { sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$(mpirun_of)/stat"; }         # its parent

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
    # What a processor lacks is no fault either.
    sed -i "/^warning: /d; /^dpx: this machine's oneDNN has no bf16/d" "$dir/said"
    # Where the test starts mpirun itself, or kills dpxrun, remarks of others are theirs.
    [ "$4" ] && sed -i '/^dpx: /!d' "$dir/said"
    [ "$(wc -l <"$dir/said")" = "$([ -z "$3" ]; echo $?)" ] && { [ -z "$3" ] || grep -q "^dpx: .*$3" "$dir/said"; } ||
        { echo "said, instead of one line with '$3':"; head -n 20 "$dir/said"; }
}

kill_rank() {
    for p in $(rank "$2"); do kill "-$1" "$p"; done
}

# ---- databases ----

sql() {
    if command -v sqlite3 >/dev/null; then
        sqlite3 "$1" "$2"
    else
        python3 -c 'import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row, sep="|")' "$1" "$2"
    fi
}
