#!/bin/sh
# test_engine_faults.sh -- what dpxrun --engine says where nothing can be run, and what it leaves behind where a run ends early.
. tests/check.sh
. tests/engine/plans.sh
B=${B:-build} PYTHON=${PYTHON:-python3}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export TMPDIR="$dir" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# refused WHAT STATUS WORDS ARGUMENTS...: its exit status, one line on stderr, and what that line names.
refused() {
    what=$1 status=$2 words=$3
    shift 3
    "$B/dpxrun" "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    check "$what" "$([ $got = "$status" ] || echo "exit status $got"; [ ! -s "$dir/out" ] || echo 'something on stdout'
        grep -q -- "$words" "$dir/err" || cat "$dir/err"; [ "$(wc -l <"$dir/err")" = 1 ] || cat "$dir/err")"
}
plan_of fsdp2-llama >"$dir/plan.json"
plan_of zero2-llama >"$dir/ds.json"
sed 's/"kernels": "torch-eager"/"kernels": "torch-compile"/' "$dir/ds.json" >"$dir/compile.json"
sed 's/"unit": "block"/"unit": "block", "dropout": 0.1/' "$dir/plan.json" >"$dir/dropout.json"
sed 's/"unit": "block"/"unit": "block", "fsdp": { "cpu_offload": true }/' "$dir/plan.json" >"$dir/offload.json"

# A Python that has nothing of a framework.
printf '#!/bin/sh\necho "{ \\"torch\\": null, \\"transformers\\": null, \\"deepspeed\\": null }"\n' >"$dir/bare"
chmod +x "$dir/bare"
refused 'a python without torch' 2 'has no torch' "$dir/plan.json" --engine torch --python "$dir/bare" --no-db
# Every option of dpxrun is followed by engines or refused, in its name.
followed=' engine python launcher reduce budget steps data sequential init seed lr min-lr warmup betas weight-decay clip device threads sbatch db no-db json help version color '
for option in $("$B/dpxrun" --help | sed -n 's/^  \(-h, \)\{0,1\}--\([a-z0-9-]*\).*/\2/p'); do
    case $followed in *" $option "*) continue ;; esac
    case $option in
    comm) value=mpi ;; algorithm) value=halving ;; bf16-sum) value=once ;; offload-io) value=threads ;; memory) value=1GB ;;
    *) value=$("$B/dpxrun" --help | sed -n "s/^  --$option \([^ ]*\).*/2/p") ;;
    esac
    # shellcheck disable=SC2086
    refused "--$option beside an engine" 2 "$option" "$dir/plan.json" --engine torch --python "$dir/bare" --no-db --$option $value
done
refused 'no such python' 2 'no such program' "$dir/plan.json" --engine torch --python "$dir/none" --no-db
refused "another framework's plan" 2 'engine deepspeed runs this one' "$dir/ds.json" --engine torch --python "$dir/bare" --no-db
refused "a plan that is not DeepSpeed's" 2 'engine torch runs that' "$dir/plan.json" --engine deepspeed --python "$dir/bare" --no-db
refused 'kernels that no runner has' 2 'torch-compile' "$dir/compile.json" --engine deepspeed --python "$dir/bare" --no-db
refused 'a key that is not followed, by its name' 2 '"dropout"' "$dir/dropout.json" --engine torch --python "$dir/bare" --no-db
refused 'a key of the framework that is not followed' 2 '"fsdp.cpu_offload"' "$dir/offload.json" --engine torch --python "$dir/bare" --no-db
refused 'what torchtitan has not' 2 'must be torch-sdpa' "$dir/plan.json" --engine torchtitan --python "$dir/bare" --no-db
plan_of torchtitan-llama >"$dir/titan.json"
for key in '"attention_bias": true' '"mlp_bias": true' '"attention_dropout": 0.1' '"rope_scaling": { "rope_type": "linear", "factor": 2 }'; do
    sed "s/\"model_type\": \"llama\"/\"model_type\": \"llama\", $key/" "$dir/titan.json" >"$dir/other.json"
    refused "a model that torchtitan has not: $key" 2 'without scaled positions, biases and dropout' "$dir/other.json" --engine torchtitan --python "$dir/bare" --no-db
done
refused "a plan that is not Megatron's" 2 'engine torch runs that' "$dir/plan.json" --engine megatron --python "$dir/bare" --no-db
plan_of megatron-zero1-llama-tensor >"$dir/megatron.json"
refused "Megatron's plan in PyTorch" 2 'dialect megatron' "$dir/megatron.json" --engine torch --python "$dir/bare" --no-db
sed 's/"megatron-local"/"te"/' "$dir/megatron.json" >"$dir/te.json"
refused 'kernels that are CUDA alone' 2 'Transformer Engine on the CPU' "$dir/te.json" --engine megatron --python "$dir/bare" --no-db
plan_of fsdp2-llama-bf16 >"$dir/bf16.json"
refused 'what the configuration of accelerate cannot say' 2 'accelerate reduces in the precision of compute' "$dir/bf16.json" --engine accelerate --python "$dir/bare" --no-db
plan_of ddp-llama-lora >"$dir/lora.json"
for without in transformers peft; do
    printf '#!/bin/sh\necho "{ \\"torch\\": \\"2.15\\", \\"transformers\\": \\"5\\", \\"peft\\": \\"0.21\\" }" | sed "s/\\"%s\\": \\"[^\\"]*\\"/\\"%s\\": null/"\n' $without $without >"$dir/less"
    chmod +x "$dir/less"
    refused "a python without $without" 2 "has no $without" "$dir/lora.json" --engine torch --python "$dir/less" --no-db
done
for engine in deepspeed:ds:deepspeed accelerate:plan:accelerate torchtitan:titan:torchtitan megatron:megatron:megatron-core; do
    IFS=: read -r name plan package <<END
$engine
END
    printf '#!/bin/sh\necho "{ \\"torch\\": \\"2.15\\", \\"transformers\\": \\"5\\" }"\n' >"$dir/less"
    refused "a python without $package" 2 "has no $package: install it there (pip install $package)" "$dir/$plan.json" --engine "$name" --python "$dir/less" --no-db
done

# The smaller plan is what runs: a quarter of eight ranks, of twelve layers three.
plan_of fsdp2-llama | sed 's/localhost:2/8xh100/; s/"num_hidden_layers": 3/"num_hidden_layers": 12/' >"$dir/large.json"
"$B/dpxrun" "$dir/large.json" --engine torch --reduce 2 --python "$dir/bare" --no-db >"$dir/out" 2>"$dir/err"
check '--reduce says what it leaves' "$(grep -q 'from 8 ranks and 12 layers to 2 and 3:' "$dir/err" || cat "$dir/err")"
# reduced NAME SED RANKS WORDS: the smaller plan is one that can be.
reduced() {
    plan_of "$1" | sed "$2" >"$dir/large.json"
    "$B/dpxrun" "$dir/large.json" --engine torch --reduce "$3" --python "$dir/bare" --no-db >"$dir/out" 2>"$dir/err"
    check "--reduce of $1" "$(grep -q "$4" "$dir/err" && grep -q 'has no torch' "$dir/err" || cat "$dir/err")"
}
reduced fsdp2-llama-tensor 's/localhost:4/8xh100/; s/"num_hidden_layers": 3/"num_hidden_layers": 12/' 4 'from 8 ranks and 12 layers to 4 and 6:'
reduced fsdp2-llama-pipeline 's/localhost:2/8xh100/; s/"num_hidden_layers": 3/"num_hidden_layers": 4/' 2 'from 8 ranks and 4 layers to 2 and 2:'
refused '--reduce below the tensor ranks' 2 'does not divide the world of 1 ranks' "$dir/large.json" --engine torch --reduce 1 --python "$dir/bare" --no-db
refused '--reduce to more ranks than there are' 2 'the plan has 2 ranks' "$dir/plan.json" --engine torch --reduce 4 --python "$dir/bare" --no-db

# A rank that dies before its first word: its last line is said, and the database has the run as failed.
printf '#!/bin/sh\ncase $1 in -c) echo "{ \\"torch\\": \\"2.15.0\\", \\"transformers\\": \\"5.0\\" }" ;; *) echo no CUDA driver >&2; exit 7 ;; esac\n' >"$dir/dying"
# One that never says anything.
printf '#!/bin/sh\ncase $1 in -c) echo "{ \\"torch\\": \\"2.15.0\\", \\"transformers\\": \\"5.0\\" }" ;; *) exec sleep 1000 ;; esac\n' >"$dir/hanging"
# One that runs out of memory.
cat >"$dir/full" <<'END'
#!/bin/sh
case $1 in -c) echo '{ "torch": "2.15.0", "transformers": "5.0" }' ;;
*) echo '{"event": "oom", "text": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free."}' \
    >"$(dirname "$1")/rank$RANK.jsonl" ;;
esac
END
chmod +x "$dir/dying" "$dir/hanging" "$dir/full"
outcome() { sqlite3 "$dir/db" "SELECT outcome || ' ' || coalesce(reason, '') FROM run ORDER BY id DESC LIMIT 1" 2>/dev/null; }
left() { for d in "$dir"/dpx-engine-*; do [ ! -e "$d" ] || echo "left: $d"; done; ps -eo args | grep "[d]px-engine-.*py" | grep "$dir"; }

"$B/dpxrun" "$dir/plan.json" --engine torch --python "$dir/dying" --db "$dir/db" >"$dir/out" 2>"$dir/err"
got=$?
check 'a rank that dies: status 1 and its last words' "$([ $got = 1 ] || echo "exit status $got"; grep -q 'no CUDA driver' "$dir/err" || cat "$dir/err"; left)"
DPX_TIMEOUT=2 "$B/dpxrun" "$dir/plan.json" --engine torch --python "$dir/hanging" --db "$dir/db" >"$dir/out" 2>"$dir/err"
got=$?
check 'ranks that hang are ended' "$([ $got = 1 ] || echo "exit status $got"; grep -q 'nothing has been done' "$dir/err" || cat "$dir/err"; left)"
"$B/dpxrun" "$dir/plan.json" --engine torch --python "$dir/full" --db "$dir/db" >"$dir/out" 2>"$dir/err"
got=$?
check 'out of memory: its message is explained' "$([ $got = 1 ] || echo "exit status $got"; grep -q 'Tried to allocate 2.00 GiB' "$dir/err" || cat "$dir/err"
    [ "$(wc -l <"$dir/err")" -gt 3 ] || cat "$dir/err"; left)"
if command -v sqlite3 >/dev/null; then
    check 'the database keeps that run as failed, with its message' "$(outcome | grep -q '^failed .*Tried to allocate' || outcome)"
else
    skip 'the database keeps that run as failed, with its message' 'there is no sqlite3'
fi
"$B/dpxrun" "$dir/plan.json" --engine torch --python "$dir/hanging" --db "$dir/db" >"$dir/out" 2>"$dir/err" &
run=$!
sleep 2
kill -TERM $run
wait $run
got=$?
check 'a signal ends all ranks' "$([ $got = 143 ] || echo "exit status $got"; grep -q interrupted "$dir/err" || cat "$dir/err"; left)"
if command -v sqlite3 >/dev/null; then
    check 'the database has the last run as interrupted' "$(outcome | grep -q interrupted || outcome)"
else
    skip 'the database has the last run as interrupted' 'there is no sqlite3'
fi

# One that does not even say what it has; one that says it and does not end; one that says something else for ever.
printf '#!/bin/sh\nexec sleep 1000\n' >"$dir/mute"
printf '#!/bin/sh\necho "{ \\"torch\\": null }"; exec sleep 1000 >/dev/null\n' >"$dir/lingering"
chmod +x "$dir/mute" "$dir/lingering"
export DPX_TIMEOUT=2
refused 'a python that does not answer' 2 'did not say in 2 s' "$dir/plan.json" --engine torch --python "$dir/mute" --no-db
refused 'a python that answers and does not end' 2 'has no torch' "$dir/plan.json" --engine torch --python "$dir/lingering" --no-db
refused 'a program that prints without end' 2 'could not be asked' "$dir/plan.json" --engine torch --python "$(command -v yes)" --no-db
refused 'a program that is no python' 2 'could not be asked' "$dir/plan.json" --engine torch --python "$(command -v true)" --no-db
plan_of ddp-gpt2 | sed 's/localhost:2/500x8xh100/' >"$dir/many.json"
refused 'tokens that fill the disk' 1 'their tokens take' "$dir/plan.json" --engine torch --python "$dir/dying" --no-db --steps 50000000
refused 'more ranks than are started' 2 'starts 1024 at most' "$dir/many.json" --engine torch --python "$dir/dying" --no-db

# srun, played.
cat >"$dir/srun" <<'END'
#!/bin/sh
n=$3
shift 3
while [ "$n" -gt 0 ]; do
    n=$((n - 1))
    SLURM_PROCID=$n SLURM_LOCALID=$n "$@" &
done
wait
END
chmod +x "$dir/srun"

# A Python whose framework lacks what the runner imports: here all of it.
if command -v python3 >/dev/null; then
    printf '#!/bin/sh\ncase $1 in -c) echo "{ \\"torch\\": \\"2.15.0\\", \\"transformers\\": \\"5.0\\" }" ;; *) exec python3 -E -s -S "$@" ;; esac\n' >"$dir/lacking"
    chmod +x "$dir/lacking"
    DPX_TIMEOUT=60 refused 'what is not there to import is named' 2 "No module named .*'torch" "$dir/plan.json" --engine torch --python "$dir/lacking" --no-db
    # Under every launcher each rank knows which it is, whatever job dpxrun itself is in.
    ranks_of() {    # LAUNCHER PLAN
        RANK=5 LOCAL_RANK=5 WORLD_SIZE=9 MASTER_ADDR=192.0.2.1 SLURM_PROCID=5 PMI_RANK=5 OMPI_COMM_WORLD_RANK=5 DPX_ENGINE_KEEP=1 DPX_TIMEOUT=60 PATH="$dir:$PATH" \
            "$B/dpxrun" "$2" --engine torch --launcher "$1" --python "$dir/lacking" --no-db >"$dir/out" 2>"$dir/err" </dev/null
        check "ranks of $1 in another job, $3" "$(for rank in 0 1; do [ -s "$(echo "$dir"/dpx-engine-*/rank$rank.jsonl)" ] || echo "no rank $rank"; done
            [ "$(cat "$dir"/dpx-engine-*/host 2>/dev/null)" = "$4" ] || echo "they meet at $(cat "$dir"/dpx-engine-*/host 2>&1)")"
        rm -r "$dir"/dpx-engine-*
    }
    sed 's/localhost:2/2x1xh100/' "$dir/plan.json" >"$dir/nodes.json"
    ranks_of dpxrun "$dir/plan.json" 'on one node' ''
    ranks_of srun "$dir/plan.json" 'on one node' ''
    ranks_of srun "$dir/nodes.json" 'on two' "$(uname -n)"
    ! command -v mpirun >/dev/null || ranks_of mpirun "$dir/plan.json" 'on one node' ''
else
    skip 'what is not there to import is named' 'there is no python3'
fi

# Ranks that take steps; one of them is killed or stopped at some moment.
cat >"$dir/stepping" <<'END'
#!/bin/sh
case $1 in -c) echo '{ "torch": "2.15.0", "transformers": "5.0" }'; exit ;; esac
for step in 1 2 3 4 5 6 7 8; do
    echo "{ \"event\": \"step\", \"step\": $step, \"seconds\": 0.1, \"loss\": 1 }" >>"$(dirname "$1")/rank${RANK:-${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}.jsonl"
    sleep 0.1
done
exec sleep 1000
END
chmod +x "$dir/stepping"
process_of() {  # RANK: that of the run in $dir
    for p in $(ps -eo pid,args | grep "[d]px-engine-.*dpx_torch.py" | grep "$dir" | grep -v mpirun | awk '{ print $1 }'); do
        tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -q "^\(RANK\|OMPI_COMM_WORLD_RANK\|SLURM_PROCID\)=$1\$" && echo "$p"
    done
}
# struck LAUNCHER SIGNAL RANK SECONDS WORDS
struck() {
    "$B/dpxrun" "$dir/plan.json" --engine torch --launcher "$1" --python "$dir/stepping" --no-db >"$dir/out" 2>"$dir/err" </dev/null &
    run=$! victim=
    while [ ! "$victim" ] && kill -0 $run 2>/dev/null; do victim=$(process_of "$3"); done
    sleep "$4"
    kill "-$2" $victim
    wait $run
    got=$?
    check "rank $3 of $1 gets SIG$2 $4 s after its start" "$([ $got = 1 ] || echo "exit status $got"; grep -q "$5" "$dir/err" || cat "$dir/err"; left)"
}
for moment in 0 0.3 1.2; do
    struck dpxrun KILL 1 $moment 'killed by signal 9'
    struck dpxrun STOP 0 $moment 'nothing has been done'
done
PATH="$dir:$PATH" struck srun STOP 1 0.3 'nothing has been done'
if command -v mpirun >/dev/null; then
    struck mpirun KILL 1 0.3 'status\|signal'
    struck mpirun STOP 1 0.3 'nothing has been done'
else
    skip 'ranks of mpirun' 'there is no mpirun'
fi
finish
