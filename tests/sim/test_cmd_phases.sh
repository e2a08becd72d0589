#!/bin/sh
# tests/sim/test_cmd_phases.sh -- dpxplan phases: a phase's training is eval's, the largest moment decides, files of TRL and verl are read.
. tests/check.sh
B=${B:-build}
keep_answers
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=$tmp/none         # no calibration of this machine
export XDG_DATA_HOME
dpxplan=$B/dpxplan

# ask FILE EXIT OPTIONS...: the document, and complaints where the exit status is another.
ask() {
    file=$1 want=$2
    shift 2
    "$dpxplan" phases "$file" "$@" --json >"$tmp/doc" 2>"$tmp/err"
    rc=$?
    [ $rc = "$want" ] || { echo "phases $file $*: exit $rc, not $want"; cat "$tmp/err"; }
}
# figure EXPRESSION: of the document d, in Python.
figure() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); phase = {p["name"]: p for p in d["phases"]}; role = {r["name"]: r for r in d["roles"]}; print(eval(sys.argv[2]))' "$tmp/doc" "$1"; }
holds() { [ "$(figure "$1")" = True ] || echo "does not hold: $1"; }

# says WORDS FILE OPTIONS...: exit 2 and the words on one line.
says() {
    words=$1
    shift
    "$dpxplan" phases "$@" >"$tmp/out" 2>"$tmp/err"
    rc=$?
    [ $rc = 2 ] || echo "phases $*: exit $rc, not 2"
    grep -q -e "$words" "$tmp/err" || { echo "not said: $words"; cat "$tmp/err"; }
}

# A bar has as many columns of each part as it has of the scale, which is the card or what is more; the mark is where usable memory ends.
bars() {
    for more in roles.engine.sleep=1 "roles.engine.gpu_memory_utilization=0.9 roles.engine.sleep=0"; do
        # shellcheck disable=SC2086
        "$dpxplan" phases demo/grpo.json --set $more --json >"$tmp/doc" 2>/dev/null
        # shellcheck disable=SC2086
        LC_ALL=C COLUMNS=100 "$dpxplan" phases demo/grpo.json --set $more --picture 2>/dev/null | python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
lines = sys.stdin.read().split("Memory of a GPU by phase: ")[1].splitlines()
names = max(len(p["name"]) for p in d["phases"])
room, most = 100 - names - 4, max([d["limit_bytes"], *(p["taken_bytes"] for p in d["phases"])])
for p in d["phases"]:
    line = next(x for x in lines if x.startswith("  " + p["name"] + " "))[names + 3:].ljust(room)
    has = [p["live_bytes"], p["engine_bytes"], p["needed_bytes"] - p["live_bytes"] - p["engine_bytes"], max(0, p["taken_bytes"] - p["needed_bytes"])]
    for letter, bytes in zip("#=+.", has):
        if abs(line.count(letter) - bytes * room / most) > 1:
            print(p["name"], letter, line.count(letter), bytes * room / most)
    mark = round(d["usable_bytes"] * room / most)
    if line.count(":") != (p["taken_bytes"] * room / most < mark < room) or (":" in line and line.index(":") != mark):
        print(p["name"], "mark", line)
' "$tmp/doc"
    done
}
check 'a picture of memory by phase: bars as long as what they stand for' "$(bars)"
# Letters of more than a byte take a column each: the bars of phases that are called so stand where they stood.
check 'a picture of phases whose names are not ASCII has its bars in the same columns' "$(
    sed 's/log-probs/löģ-prüb€/; s/"weights"/"wëïghts"/' demo/grpo.json >"$tmp/letters.json"
    for set in C C.UTF-8; do
        LC_ALL=$set COLUMNS=100 "$dpxplan" phases demo/grpo.json --picture 2>/dev/null | sed -n '/^Memory of a GPU by/,/^$/p' >"$tmp/ascii"
        LC_ALL=$set COLUMNS=100 "$dpxplan" phases "$tmp/letters.json" --picture 2>/dev/null | sed -n '/^Memory of a GPU by/,/^$/p' |
            sed 's/löģ-prüb€/log-probs/; s/wëïghts/weights/' >"$tmp/letters"
        cmp "$tmp/ascii" "$tmp/letters"
        [ "$(wc -l <"$tmp/letters")" -gt 5 ] || echo 'no picture'
    done)"

# The update is the plan's own evaluation, 1024 samples in 4 steps of 4 x 8 x 8; forwards 1024 / (8 x 8) micro-steps.
training_is_eval() {
    ask demo/grpo.json 0
    python3 -c 'import json; d = json.load(open("demo/grpo.json")); p = d["roles"]["actor"]["train"]; p.update(dpx_plan=1, cluster=d["cluster"]); print(json.dumps(p))' >"$tmp/plan.json"
    "$dpxplan" eval "$tmp/plan.json" --json >"$tmp/eval"
    holds "abs(sum(p['time']['s'] for p in d['phases']) - d['iteration']['s']) < 1e-9 and d['moves_s'] > 0"
    holds "phase['update']['live_bytes'] + phase['update']['outside_bytes'] == json.load(open('$tmp/eval'))['memory']['allocated_peak_bytes'] + phase['update']['outside_bytes']"
    holds "phase['update']['times'] == 4 and phase['log-probs']['times'] == 16"
    holds "phase['update']['moved_bytes'] == role['actor']['params_bytes'] + role['actor']['optimizer_bytes'] + role['reference']['params_bytes']"
    holds "role['actor']['params_bytes'] == json.load(open('$tmp/eval'))['memory']['params_bytes']"
    # where nothing moves to host memory its time is eval's as well
    ask demo/grpo.json 0 --set roles.actor.between=device roles.reference.between=device roles.engine.sleep=2 roles.engine.version=0.11
    holds "d['moves_s'] == 0 and abs(phase['update']['time']['s'] / 4 - json.load(open('$tmp/eval'))['time']['step_s']) < 1e-9"
}
check 'an update is what eval says of its plan' "$(training_is_eval)"

largest_decides() {
    ask demo/grpo.json 0
    holds "max(p['needed_bytes'] for p in d['phases']) == phase[d['largest']]['needed_bytes'] < d['limit_bytes']"
    holds "d['fits'] and phase['generate']['needed_bytes'] + phase['update']['needed_bytes'] > phase[d['largest']]['needed_bytes']"
    holds "abs(sum(p['time']['s'] for p in d['phases']) - d['iteration']['s']) < 1e-9"
    holds "all(p['needed_bytes'] <= p['taken_bytes'] for p in d['phases'])"
    # asleep, an engine has what is outside its allocator; awake, half of the card and graphs
    holds "phase['update']['engine_bytes'] == role['engine']['asleep_bytes'] and phase['generate']['engine_bytes'] == role['engine']['awake_bytes']"
    sed 's/"gpu_memory_utilization": 0.5, "sleep": 1/"gpu_memory_utilization": 0.9/' demo/grpo.json >"$tmp/big.json"
    ask "$tmp/big.json" 3
    holds "not d['fits'] and 'too much' in d['why_not'] and phase[d['largest']]['needed_bytes'] > d['limit_bytes'] and len(d['changes']) > 0"
    holds "all(c['needed_bytes'] <= d['limit_bytes'] for c in d['changes'])"
}
# On 40 GB neither the engine nor the trainers leave room for the other one.
together() {
    sed 's/"micro_batch": [48]/"micro_batch": 1/' demo/grpo.json >"$tmp/small.json"
    ask "$tmp/small.json" 3 --set cluster=8xa100-40gb roles.engine.gpu_memory_utilization=0.8 roles.actor.empties_cache=false \
        roles.actor.between=device roles.actor.train.accumulation=32
    holds "len(d['changes']) == 1 and d['changes'][0]['change'].startswith('together') and d['changes'][0]['needed_bytes'] < d['limit_bytes']"
}
check 'where no single change is enough several are named' "$(together)"
check 'the largest moment decides, and each change that is named makes it fit' "$(largest_decides)"

# A phase replayed alone from an empty allocator reserves what eval says of its plan; a forward and an update are between the larger of them and their
# sum, and no more than without an emptied cache.
one_allocator() {
    python3 -c '
import json
d = json.load(open("demo/grpo.json"))
d["roles"]["actor"].update(between="device", empties_cache=False)
json.dump({**d, "roles": {"actor": d["roles"]["actor"]}, "phases": [{"update": "actor"}]}, open("'"$tmp"'/alone.json", "w"))
both = {**d, "roles": {"actor": d["roles"]["actor"]}, "phases": [{"forward": "actor", "micro_batch": 8}, {"update": "actor"}]}
json.dump(both, open("'"$tmp"'/kept.json", "w"))
both["roles"]["actor"]["empties_cache"] = True
json.dump(both, open("'"$tmp"'/emptied.json", "w"))
p = d["roles"]["actor"]["train"]
p.update(dpx_plan=1, cluster=d["cluster"])
json.dump(p, open("'"$tmp"'/plan.json", "w"))'
    "$dpxplan" eval "$tmp/plan.json" --json >"$tmp/eval"
    ask "$tmp/alone.json" 0
    holds "phase['update']['reserved_bytes'] == json.load(open('$tmp/eval'))['memory']['reserved_peak_bytes']"
    ask "$tmp/kept.json" 0
    figure "max(p['reserved_bytes'] for p in d['phases'])" >"$tmp/kept"
    holds "phase['forward']['reserved_bytes'] == phase['update']['reserved_bytes'] >= json.load(open('$tmp/eval'))['memory']['allocator']['allocated_peak_bytes']"
    ask "$tmp/emptied.json" 0
    holds "max(p['reserved_bytes'] for p in d['phases']) <= $(cat "$tmp/kept")"
    holds "all(p['live_bytes'] <= p['reserved_bytes'] for p in d['phases'])"
}
check 'all phases go through one allocator' "$(one_allocator)"

# On a card that is nearly full the allocator gives its cache back and asks again: in the phases in which the trainers act no more is taken than
# there is, as long as what is live finds room.
a_full_card() {
    ask demo/verl-grpo.yaml 3 --cluster 2xh100 --response 300,1024
    holds "all(p['taken_bytes'] <= d['limit_bytes'] for p in d['phases'] if p['does'] in ('forward', 'update', 'hands over'))"
    holds "all(p['live_bytes'] <= p['reserved_bytes'] for p in d['phases'])"
    ask demo/verl-grpo.yaml 0 --cluster 2xh200 --response 300,1024
    holds "max(p['taken_bytes'] for p in d['phases'] if p['does'] == 'update') > 85000000000"
}
check 'on a full card the allocator gives its cache back' "$(a_full_card)"

# An engine that never sleeps has its memory from before the first step on: the trainers' idle cache stands in nobody's way.  Where the allocator itself finds no
# room the phases do not fit, even if all that is live would.
beside_one_that_never_sleeps() {
    ask demo/grpo.json 0 --set roles.engine.sleep=0 roles.engine.gpu_memory_utilization=0.45 roles.actor.empties_cache=false
    holds "d['tight'] and phase['generate']['needed_bytes'] == phase['generate']['live_bytes'] + phase['generate']['outside_bytes'] + phase['generate']['engine_bytes']"
    holds "all(p['needed_bytes'] <= p['taken_bytes'] <= d['limit_bytes'] for p in d['phases'])"
    ask demo/grpo.json 3 --set roles.engine.sleep=0 roles.engine.gpu_memory_utilization=0.55
    holds "'\"update\"' in d['why_not'] and 'lies in pieces' in d['why_not'] and all(p['needed_bytes'] <= d['limit_bytes'] for p in d['phases'])"
}
check 'an idle cache is in the way of what grows alone, and an allocator without room is no fit' "$(beside_one_that_never_sleeps)"

# What is moved to host memory leaves the GPU only once the cache is emptied.
offload_needs_an_empty_cache() {
    for empties in true false; do
        sed "s/\"empties_cache\": true/\"empties_cache\": $empties/" demo/grpo.json >"$tmp/$empties.json"
        ask "$tmp/$empties.json" 0 --set roles.engine.gpu_memory_utilization=0.3
        figure "phase['generate']['reserved_bytes']" >"$tmp/reserved.$empties"
        holds "phase['generate']['live_bytes'] == 0"
    done
    [ "$(cat "$tmp/reserved.true")" = 0 ] || echo 'something stays reserved'
    [ "$(cat "$tmp/reserved.false")" -gt 30000000000 ] || echo 'nothing stays reserved'
}
check 'offload without an empty cache wins no GPU memory' "$(offload_needs_an_empty_cache)"

# Of a recipe keys of roles are the plan's that it becomes, and others its own.
roles_of_a_recipe() {
    ask demo/verl-grpo.yaml 0 --cluster 8xh100 --response 300,1024 --set roles.engine.sleep=0 actor_rollout_ref.rollout.n=4
    holds "d['plan']['roles']['engine']['sleep'] == 0 and d['plan']['of_prompt'] == 4"
    for wrong in roles.engine.slep=1 roles.nobody.sleep=1 roles.engine.sleep=9; do
        $B/dpxplan phases demo/verl-grpo.yaml 8xh100 --response 300,1024 --set $wrong >"$tmp/out" 2>"$tmp/err"
        [ $? = 2 ] || echo "$wrong is not refused"
        grep -q roles "$tmp/err" || echo "$wrong is not named"
    done
}
check 'of a recipe --set changes roles of the plan that it becomes' "$(roles_of_a_recipe)"

cat >"$tmp/grpo.yaml" <<'END'
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
num_generations: 8
max_completion_length: 512
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
use_vllm: true
vllm_mode: colocate
beta: 0.04
bf16: true
END
grpo() {
    ask "$tmp/grpo.yaml" 0 --cluster 8xh100 --response 200,512
    # 4 x 8 ranks x 4 micro-steps; vLLM takes 0.3 of the card and stays; a reference model and, for importance sampling, a forward of the policy
    holds "d['samples'] == 128 and [p['name'] for p in d['phases']] == ['weights', 'generate', 'log-probs', 'reference', 'update']"
    holds "role['reference']['params_bytes'] == role['policy']['params_bytes'] and d['plan']['roles']['engine']['max_num_seqs'] == 16"
    holds "all(p['engine_bytes'] == role['engine']['awake_bytes'] for p in d['phases'])"
    (cat "$tmp/grpo.yaml"; echo 'vllm_enable_sleep_mode: true') | sed 's/beta: 0.04/beta: 0/' >"$tmp/sleep.yaml"
    ask "$tmp/sleep.yaml" 0 --cluster 8xh100 --response 200,512
    holds "'reference' not in phase and phase['update']['engine_bytes'] < 2 ** 30 and role['engine']['host_bytes'] == 0"
    # without the correction the samples' own model scores them only where they outlive an optimizer step: 8 micro-steps for steps of 4
    (cat "$tmp/sleep.yaml"; echo 'vllm_importance_sampling_correction: false') >"$tmp/aligned.yaml"
    ask "$tmp/aligned.yaml" 0 --cluster 8xh100 --response 200,512
    holds "'log-probs' not in phase"
    for more in 'steps_per_generation: 8' 'num_iterations: 2'; do
        (cat "$tmp/aligned.yaml"; echo "$more") >"$tmp/older.yaml"
        ask "$tmp/older.yaml" 0 --cluster 8xh100 --response 200,512
        holds "'log-probs' in phase"
        grep -q 'old log-probabilities' "$tmp/err" && echo "$more: the phase is there, and said not to be"
    done
    grep -v use_vllm "$tmp/grpo.yaml" >"$tmp/hf.yaml"
    says 'generation by transformers' "$tmp/hf.yaml" --cluster 8xh100
    sed 's/colocate/server/' "$tmp/grpo.yaml" >"$tmp/server.yaml"
    # a server's GPUs are beside the trainers'; before TRL 1.0 that was the default
    (grep -v vllm_mode "$tmp/grpo.yaml"; echo 'max_prompt_length: 512') >"$tmp/before.yaml"
    for more in server before; do
        ask "$tmp/$more.yaml" 0 --cluster 8xh100 --response 200,512
        holds "all(p['engine_bytes'] == 0 for p in d['phases']) and 'cluster' in d['plan']['roles']['engine']"
        grep -q 'planned as one engine on a GPU of its own beside the 8 that train' "$tmp/err" || cat "$tmp/err"
    done
    grep -v vllm_mode "$tmp/grpo.yaml" >"$tmp/now.yaml"
    ask "$tmp/now.yaml" 0 --cluster 8xh100 --response 200,512
    grep -q 'vllm_mode: not given: colocate, the default since TRL 1.0' "$tmp/err" || cat "$tmp/err"
    says 'a mean and a longest' "$tmp/grpo.yaml" --cluster 8xh100 --response 200
    says 'a mean and a longest' "$tmp/grpo.yaml" --cluster 8xh100 --response 200,500k
    says 'at most, but the file has 512' "$tmp/grpo.yaml" --cluster 8xh100 --response 200,600
}
check "TRL's GRPO: vLLM in the same process, a reference model with beta" "$(grpo)"

printf 'model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct\nbeta: 0.1\nmax_length: 1024\nper_device_train_batch_size: 2\nbf16: true\n' >"$tmp/dpo.yaml"
dpo() {
    ask "$tmp/dpo.yaml" 0 --cluster 8xh100
    figure "phase['update']['needed_bytes']" >"$tmp/both"
    # pairs: 2 samples are 4 sequences a rank; the reference has as many weights again
    holds "role['reference']['params_bytes'] == role['policy']['params_bytes'] and d['plan']['roles']['policy']['train']['micro_batch'] == 4"
    (cat "$tmp/dpo.yaml"; echo 'precompute_ref_log_probs: true') >"$tmp/before.yaml"
    ask "$tmp/before.yaml" 0 --cluster 8xh100
    [ "$(cat "$tmp/both")" -ge "$(figure "phase['update']['needed_bytes'] + role['policy']['params_bytes']")" ] || echo 'the reference model has no bytes'
    says 'DPO generates no responses' "$tmp/dpo.yaml" --cluster 8xh100 --response 200,512
    (cat "$tmp/dpo.yaml"; echo 'use_peft: true') >"$tmp/lora.yaml"
    ask "$tmp/lora.yaml" 0 --cluster 8xh100
    holds "role['reference']['params_bytes'] == 0"
}
check "TRL's DPO: a reference model beside the policy, none of its own with adapters" "$(dpo)"

cat >"$tmp/verl.yaml" <<'END'
data: { train_batch_size: 256, max_prompt_length: 512, max_response_length: 1024 }
algorithm: { adv_estimator: grpo }
actor_rollout_ref:
  model: { path: Qwen/Qwen2.5-1.5B-Instruct, enable_gradient_checkpointing: true }
  actor: { use_kl_loss: true, ppo_mini_batch_size: 64, ppo_micro_batch_size_per_gpu: 8, fsdp_config: { param_offload: true, optimizer_offload: true } }
  rollout: { name: vllm, n: 4, tensor_model_parallel_size: 2, gpu_memory_utilization: 0.6, log_prob_micro_batch_size_per_gpu: 16 }
  ref: { log_prob_micro_batch_size_per_gpu: 8 }
trainer: { n_gpus_per_node: 8, nnodes: 1 }
END
verl() {
    ask "$tmp/verl.yaml" 0 --cluster 8xh100 --response 300,1024
    # 256 x 4 responses; mini-batches of 64 x 4; micro-steps of 16 and of 8 on 8 ranks
    holds "d['samples'] == 1024 and phase['update']['times'] == 4 and phase['log-probs']['times'] == 8 and phase['reference']['times'] == 16"
    # the actor sleeps in host memory, the reference is always there
    holds "phase['generate']['live_bytes'] == 0 and role['reference']['params_bytes'] == 0 and d['host_bytes_of_a_node'] > 0"
    sed 's/algorithm:.*/algorithm: { adv_estimator: gae }/' "$tmp/verl.yaml" >"$tmp/gae.yaml"
    says 'critic.model.path: not given' "$tmp/gae.yaml" --cluster 8xh100
    sed 's/name: vllm/name: hf/' "$tmp/verl.yaml" >"$tmp/hf.yaml"
    says 'vllm and sglang are planned' "$tmp/hf.yaml" --cluster 8xh100
    sed 's/name: vllm/name: sglang/' "$tmp/verl.yaml" >"$tmp/sgl.yaml"
    ask "$tmp/sgl.yaml" 0 --cluster 8xh100 --response 300,1024
    holds "role['engine']['engine'] == 'SGLang' and role['engine']['host_bytes'] == 0"
    # vLLM sleeps without its weights, but where layers are summoned one by one; checkpoint_engine is where 0.8 has the bucket
    ask "$tmp/verl.yaml" 0 --cluster 8xh100 --response 300,1024
    holds "role['engine']['host_bytes'] == 0 and d['plan']['roles']['engine']['sleep'] == 2"
    sed 's/name: vllm,/name: vllm, layered_summon: true, checkpoint_engine: { update_weights_bucket_megabytes: 100 },/' "$tmp/verl.yaml" >"$tmp/new.yaml"
    ask "$tmp/new.yaml" 0 --cluster 8xh100 --response 300,1024
    holds "role['engine']['host_bytes'] > 0 and d['plan']['phases'][0]['bucket_bytes'] == 100 << 20"
    sed 's/name: vllm,/name: vllm, checkpoint_engine: { backend: nccl },/' "$tmp/verl.yaml" >"$tmp/nccl.yaml"
    says 'checkpoint_engine.backend' "$tmp/nccl.yaml" --cluster 8xh100
}
check "verl's GRPO: offloaded actor, reference in host memory, engine asleep" "$(verl)"

# Commands and configs as their projects have them: planned, or refused on one line.
examples() {
    planned=0
    for f in tests/golden/forms/verl/grpo*.sh tests/golden/forms/verl/ppo*.sh tests/golden/forms/trl/*dpo* tests/golden/forms/trl/grpo*.yaml tests/golden/forms/alignment-handbook/*dpo*.yaml; do
        "$dpxplan" phases "$f" --cluster 8xh100 >"$tmp/out" 2>"$tmp/err"
        case $? in
        0|3) planned=$((planned + 1)) ;;
        2) grep -q "^dpx: $f: " "$tmp/err" || { echo "$f: no reason"; cat "$tmp/err"; } ;;
        *) echo "$f: another exit status"; cat "$tmp/err" ;;
        esac
    done
    [ $planned -ge 15 ] || echo "only $planned are planned"
    # examples/grpo_trainer/run_qwen2-7b.sh: 1024 x 5 responses, mini-batches of 256 x 5
    ask tests/golden/forms/verl/grpo_qwen2_7b.sh 0 --cluster 8xh100
    holds "d['samples'] == 5120 and phase['update']['times'] == 4 and role['engine']['tensor'] == 2"
}
check 'examples of verl, TRL and alignment-handbook are planned, or refused by name' "$(examples)"

# Of one file both say that it is not planned, but where one model's step is refused for the models beside it.
as_import() {
    grep 'refused=' tests/golden/forms/expected.txt | cut -d'|' -f1,3,4,5 | tr -d ' ' | tr '|' ' ' >"$tmp/refused"
    while read -r f cluster model seq; do
        case $f in *dpo*|*kto*|*reward*) continue ;; esac
        [ "$model" = - ] && model= || model="--model $model"
        [ "$seq" = - ] && seq= || seq="--seq $seq"
        "$dpxplan" phases "tests/golden/forms/$f" --cluster "$cluster" $model $seq >"$tmp/out" 2>"$tmp/err"
        [ $? = 2 ] || echo "$f: import refuses it, phases does not"
    done <"$tmp/refused"
    says 'main_ppo_split.py: an actor on a part of the GPUs' tests/golden/forms/verl/split_placement.sh --cluster 8xh100
}
check 'what import refuses of a form phases refuses, too' "$(as_import)"

apart() {
    python3 -c 'import json; d = json.load(open("demo/grpo.json")); d["roles"]["engine"].update(cluster="4xh100", gpu_memory_utilization=0.9); d["asynchronous"] = True; print(json.dumps(d))' >"$tmp/apart.json"
    ask "$tmp/apart.json" 0
    holds "all(p['engine_bytes'] == 0 for p in d['phases']) and role['engine']['apart']"
    holds "abs(d['iteration']['s'] - max(phase['generate']['time']['s'], sum(p['time']['s'] for n, p in phase.items() if n != 'generate'))) < 1e-9"
    # where the engine decides it waits for its weights, too
    ask "$tmp/apart.json" 0 --set response.longest=1536 roles.engine.max_num_seqs=16
    holds "d['iteration']['s'] > sum(p['time']['s'] for n, p in phase.items() if p['does'] in ('forward', 'update', 'hands over'))"
    holds "abs(d['iteration']['s'] - sum(p['time']['s'] for p in phase.values() if p['does'] in ('generates', 'hands over'))) < 1e-9"
    # the responses of two iterations at once, each of which has half of the time
    ask "$tmp/apart.json" 0 --set samples=2048
    cp "$tmp/doc" "$tmp/twice"
    ask "$tmp/apart.json" 0 --set ahead=2
    holds "d['generation'] == json.load(open('$tmp/twice'))['generation'] and 2 * d['samples'] == json.load(open('$tmp/twice'))['samples']"
    holds "abs([p for p in json.load(open('$tmp/twice'))['phases'] if p['name'] == 'generate'][0]['time']['s'] - phase['generate']['time']['s'] - d['generation']['time']['s'] / 2) < 1e-9"
    says 'ahead: must be 1 where the plan is not "asynchronous"' demo/grpo.json --set ahead=2
    says 'phases: generate: .* responses of one engine' "$tmp/apart.json" --set ahead=1000000000
    says 'phases: generate: .* responses of one engine' demo/grpo.json --set samples=1000000000
    # the middle of all draws is the prediction, and nine in ten draws are within its interval, whose ends add those of the phases
    holds "len(d['iteration_draws_s']) == 521 and abs(sorted(d['iteration_draws_s'])[260] / d['iteration']['s'] - 1) < 0.1"
    holds "sum(d['iteration']['low_s'] <= s <= d['iteration']['high_s'] for s in d['iteration_draws_s']) >= 0.9 * 521"
}
check 'an engine apart, one step off: the longer side decides' "$(apart)"

check 'whole steps that NeMo-RL published lie inside the interval' "$(B=$B python3 tests/accuracy/nemo_rl.py --check 2>&1)"
check 'of prime-rl dense rows with adapters reserve within 4 %, and take within 12 %, on average' "$(B=$B python3 tests/accuracy/primerl.py --check 2>&1)"

# Each layout is a plan with the figures that the table has, on as many GPUs, with the same global batch; the fastest comes first.
layouts() {
    ask demo/grpo.json 0 --search
    cp "$tmp/doc" "$tmp/found"
    holds "len(d['search']['fit']) >= 8 and [l['iteration']['s'] for l in d['search']['fit']] == sorted(l['iteration']['s'] for l in d['search']['fit'])"
    holds "{l['layout'] for l in d['search']['fit']} == {'together', 'apart'} and all(l['needed_bytes'] <= d['limit_bytes'] for l in d['search']['fit'])"
    # a layout whose largest moment leaves less than the headroom free is tight
    holds "all(l['tight'] for l in d['search']['fit'] if l['needed_bytes'] > d['usable_bytes'])"
    holds "all((l['idle'] == 0) == (l['layout'] == 'together') and 0 <= l['idle'] < 1 for l in d['search']['fit'])"
    for layout in together apart; do
        python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); l = next(l for l in d["search"]["fit"] if l["layout"] == sys.argv[2]); print(json.dumps(l["plan"])); print(l["iteration"]["s"], l["needed_bytes"], file=sys.stderr)' \
            "$tmp/found" $layout >"$tmp/layout.json" 2>"$tmp/figures"
        ask "$tmp/layout.json" 0
        [ "$(figure "'%r %r' % (d['iteration']['s'], phase[d['largest']]['needed_bytes'])")" = "$(cat "$tmp/figures")" ] || cat "$tmp/figures"
        holds "phase['update']['times'] == 4"
    done
    # together or apart is said where the interval of their quotient is on one side of 1
    holds "(lambda s, q: s['faster'] == ('together' if q['high'] < 0.99 else 'apart' if q['low'] > 1.01 else None) and q['low'] < q['middle'] < q['high'])(json.load(open('$tmp/found'))['search'], json.load(open('$tmp/found'))['search']['together_over_apart'])"
    holds "json.load(open('$tmp/found'))['search']['faster'] in (None, json.load(open('$tmp/found'))['search']['fit'][0]['layout'])"
    # apart: as many GPUs
    holds "d['cluster']['world_size'] + d['plan']['roles']['engine']['cluster']['gpus_per_node'] == 8"
    # the fastest one by phase, and as a picture, is what that plan says by itself
    python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["search"]["fit"][0]["plan"]))' "$tmp/found" >"$tmp/layout.json"
    "$dpxplan" phases "$tmp/layout.json" --picture 2>"$tmp/err" | sed -n '/^  phase/,/^\*/{/^\*/!p;};/^Memory of a GPU by/,/^$/p' | sed '/^$/d' >"$tmp/alone"
    "$dpxplan" phases demo/grpo.json --search --picture 2>"$tmp/err" | sed -n '/^The fastest of them by phase/,$p' | sed '1d;/^$/d' >"$tmp/fastest"
    [ "$(wc -l <"$tmp/fastest")" -ge 12 ] && diff "$tmp/alone" "$tmp/fastest"
    # of a plan that is the fastest there is nothing more to say
    "$dpxplan" phases "$tmp/layout.json" --search 2>"$tmp/err" | grep 'The fastest of them'
    says 'tries an engine beside the trainers and apart' demo/grpo.json --search --set roles.engine.cluster=2xh100
}
check 'layouts: each is a plan that gives its figures' "$(layouts)"

# Each key of these files that a phase depends on is followed, told, or refused by its path; a value of another kind is refused.
keys() {
    python3 - "$dpxplan" "$tmp" <<'END'
import copy, json, re, subprocess, sys
dpxplan, tmp = sys.argv[1:]
R, A, F = "actor_rollout_ref.rollout.", "actor_rollout_ref.actor.", "actor_rollout_ref.ref."
verl = {"data": {"train_batch_size": 256, "max_prompt_length": 512, "max_response_length": 1024}, "algorithm": {"adv_estimator": "grpo"}, "actor_rollout_ref": {
    "model": {"path": "Qwen/Qwen2.5-1.5B-Instruct"}, "actor": {"use_kl_loss": True, "ppo_mini_batch_size": 64, "ppo_micro_batch_size_per_gpu": 8},
    "rollout": {"name": "vllm", "n": 4, "log_prob_micro_batch_size_per_gpu": 16}, "ref": {"log_prob_micro_batch_size_per_gpu": 8}}}
grpo = {"model_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct", "num_generations": 8, "max_completion_length": 512, "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4, "use_vllm": True, "beta": 0.04, "bf16": True}
dpo = {"model_name_or_path": "Qwen/Qwen2.5-1.5B-Instruct", "beta": 0.1, "max_length": 512, "per_device_train_batch_size": 2, "bf16": True}
def answer(doc):
    r = subprocess.run([dpxplan, "phases", "-", "--json", "--cluster", "8xh100"], input=json.dumps(doc), capture_output=True, text=True)
    return r.returncode, r.stdout, r.stderr
def look(doc, outcome, pairs):
    before = answer(doc)
    for path, value in pairs:
        changed = at = copy.deepcopy(doc)
        *folders, last = path.split(".")
        for name in folders:
            at = at.setdefault(name, {})
        at[last] = value
        rc, out, err = answer(changed)
        got = "refused" if rc == 2 else "followed" if out != before[1] else "told" if err != before[2] else "passed over"
        if got != outcome or (got != "followed" and last not in err):
            print(path, value, "is", got, "not", outcome, err)
counts = [R + k for k in ("tensor_model_parallel_size", "max_num_seqs", "max_num_batched_tokens", "log_prob_micro_batch_size_per_gpu", "update_weights_bucket_megabytes")]
look(verl, "refused", [(k, v) for k in counts + [A + "ppo_epochs", "data.train_batch_size"] for v in ("many", 2.5)] + [(F + "log_prob_micro_batch_size_per_gpu", -1)])
look(verl, "refused", [(k, "maybe") for k in (R + "enforce_eager", R + "free_cache_engine", A + "fsdp_config.param_offload", "reward_model.enable")])
look(verl, "refused", [("critic.enable", True), ("algorithm.adv_estimator", "remax"), ("algorithm.filter_groups.enable", True), (R + "quantization", "torchao"), (R + "pipeline_model_parallel_size", 2),
                       (R + "expert_parallel_size", 4), (R + "dtype", "fp8"), (R + "max_model_len", 1000), (F + "model.path", "Qwen/Qwen2.5-7B"), (F + "strategy", "megatron"), (R + "gpu_memory_utilization", "half")])
look(verl, "followed", [(R + "dtype", "float32"), (R + "quantization", "fp8"), (R + "log_prob_use_dynamic_bsz", True), (F + "log_prob_use_dynamic_bsz", True), (R + "free_cache_engine", 0),
                        ("algorithm.rollout_correction.bypass_mode", True), (R + "update_weights_bucket_megabytes", 2048), (A + "ppo_epochs", 2)])
look(verl, "told", [("trainer.nnodes", 2), ("trainer.n_gpus_per_node", 4), (F + "ulysses_sequence_parallel_size", 2), (F + "fsdp_config.fsdp_size", 4), (R + "multi_turn.enable", True), (R + "engine_kwargs.vllm.kv_cache_dtype", "fp8"),
                      (F + "strategy", "fsdp2"), (F + "zzz", 1), ("algorithm.zzz", 1), (R + "calculate_log_probs", True), (R + "enable_prefix_caching", False)])
look(grpo, "refused", [(k, v) for k in ("num_generations", "steps_per_generation", "num_iterations", "vllm_tensor_parallel_size", "max_completion_length") for v in ("many", 2.5)])
look(grpo, "refused", [("beta", "some"), ("vllm_enable_sleep_mode", "maybe"), ("vllm_mode", 3), ("num_generations", 7), ("generation_batch_size", 100),
                       ("vllm_max_model_length", 600), ("reward_model_name_or_path", "x")])
look({**grpo, "steps_per_generation": 4}, "refused", [("generation_batch_size", 128)])
look(dpo, "refused", [("precompute_ref_log_probs", "maybe"), ("per_device_train_batch_size", 2.5)])
look(dpo, "followed", [("precompute_ref_log_probs", 1), ("max_length", 1024)])
# ref: 16384 tokens are 10 samples of 1536, and 8 ranks take 80 of 1024 at once
dynamic = copy.deepcopy(verl); dynamic["actor_rollout_ref"]["ref"]["log_prob_use_dynamic_bsz"] = True
print(*[p["times"] for p in json.loads(answer(dynamic)[1])["phases"] if p["name"] == "reference" and p["times"] != 13])
END
}
check 'what a config asks for is followed, told or refused, never passed over' "$(keys | sed '/^$/d')"

# Each key of the schema is one that is read, in its place; others are not.
schema() {
    "$dpxplan" schema --phases >"$tmp/schema.json"
    python3 - "$dpxplan" "$tmp/schema.json" <<'END'
import json, subprocess, sys
schema = json.load(open(sys.argv[2]))["properties"]
engine, model = schema["roles"]["additionalProperties"]["oneOf"]
plan = json.load(open("demo/grpo.json"))
places = {"top": (schema, lambda d: d), "engine": (engine["properties"], lambda d: d["roles"]["engine"]), "role": (model["properties"], lambda d: d["roles"]["actor"]),
          "phase": (schema["phases"]["items"]["properties"], lambda d: d["phases"][0]), "response": (schema["response"]["properties"], lambda d: d["response"])}
def said(place, key):
    changed = json.loads(json.dumps(plan))
    places[place][1](changed)[key] = [[]]
    return subprocess.run([sys.argv[1], "phases", "-"], input=json.dumps(changed), capture_output=True, text=True).stderr
for place, (keys, _) in places.items():
    for key in keys:
        if "unknown key" in said(place, key):
            print(place, key, "is not read")
    if "unknown key" not in said(place, "another"):
        print(place, "takes any key")
def taken(part, value, where):
    for key in value:
        if key not in part:
            print(where, key, "is not in the schema")
taken(schema, plan, "demo"); taken(engine["properties"], plan["roles"]["engine"], "engine"); taken(model["properties"], plan["roles"]["actor"], "actor")
for phase in plan["phases"]:
    taken(places["phase"][0], phase, "phase")
END
}
check 'the schema has the keys that are read' "$(schema)"

# Samples have 512 + 700 of 2048 tokens on average: without padding an update, nothing moved, takes what steps of samples of 1212 tokens do, and the
# reference, which is elsewhere, is no byte on the actor's GPUs.
unpadded_and_places() {
    ask demo/grpo.json 0 --set roles.actor.between=device roles.reference.between=device roles.engine.sleep=2 roles.engine.version=0.11
    cp "$tmp/doc" "$tmp/padded"
    ask demo/grpo.json 0 --set roles.actor.between=device roles.reference.between=device roles.engine.sleep=2 roles.actor.unpadded=true
    python3 -c 'import json, sys; p = json.load(open(sys.argv[1]))["plan"]; print(json.dumps(dict(p["roles"]["actor"]["train"], dpx_plan=1, cluster=p["cluster"], seq=1212)))' \
        "$tmp/doc" >"$tmp/short.json"
    "$dpxplan" eval "$tmp/short.json" --json >"$tmp/short"
    holds "abs(phase['update']['time']['s'] / phase['update']['times'] / json.load(open('$tmp/short'))['time']['step_s'] - 1) < 1e-9"
    holds "phase['update']['time']['high_s'] == [p for p in json.load(open('$tmp/padded'))['phases'] if p['name'] == 'update'][0]['time']['high_s']"
    holds "phase['reference']['time'] == [p for p in json.load(open('$tmp/padded'))['phases'] if p['name'] == 'reference'][0]['time']"
    python3 -c '
import json
d = json.load(open("demo/grpo.json"))
d["places"] = {"other": "4xh100"}
d["roles"]["reference"] = {"infer": "actor", "place": "other"}
d["phases"][3]["with_before"] = True
print(json.dumps(d))' >"$tmp/places.json"
    ask "$tmp/places.json" 0
    holds "[p['name'] for p in d['places'][0]['phases']] == ['reference'] and d['places'][0]['cluster']['world_size'] == 4"
    holds "phase['update']['moved_bytes'] == role['actor']['params_bytes'] + role['actor']['optimizer_bytes']"
    holds "abs(d['iteration']['s'] - sum(phase[n]['time']['s'] for n in ('weights', 'generate', 'update')) - max(phase[n]['time']['s'] for n in ('log-probs', 'reference'))) < 1e-9"
    # four GPUs have twice as much each to compute, and to hold of the weights
    holds "phase['reference']['times'] == 2 * phase['log-probs']['times']"
    says 'no role is on "third"' "$tmp/places.json" --set places.third=2xh100
    says 'place: must be a name of "places"' "$tmp/places.json" --set roles.actor.place=nowhere
    says 'with_before' demo/grpo.json --set 'phases=[{"update":"actor","with_before":true}]'
    says 'beside: must be a role on the same GPUs' "$tmp/places.json" --set 'phases=[{"update":"actor","beside":"reference"},{"generate":"engine"}]'
    says 'frees_gradients' demo/grpo.json --set roles.reference.frees_gradients=true
}
check 'padding left out, and roles on GPUs of their own' "$(unpadded_and_places)"

# Nothing balances a router: seconds of the busiest rank with 2.28 times the mean, the interval's ends with 1.30 and 4.01; bytes as the plan has them.
uneven_experts() {
    cat >"$tmp/uneven.json" <<'END'
{ "dpx_phases": 1, "cluster": "8xh100", "samples": 64,
  "roles": { "policy": { "train": { "model": "qwen3-30b-a3b", "strategy": "zero1", "dialect": "megatron", "kernels": "te", "seq": 2048, "micro_batch": 1, "accumulation": 8,
             "precision": "bf16", "reduce_dtype": "bf16", "parallel": { "expert": 8 }, "megatron": { "use_precision_aware_optimizer": true } } } },
  "phases": [ { "name": "log-probs", "forward": "policy" }, { "name": "update", "update": "policy" } ] }
END
    python3 -c 'import json, sys; p = json.load(open(sys.argv[1])); print(json.dumps(dict(p["roles"]["policy"]["train"], dpx_plan=1, cluster=p["cluster"])))' "$tmp/uneven.json" >"$tmp/one.json"
    for uneven in 1 1.30 2.28 4.01; do
        "$dpxplan" eval "$tmp/one.json" --set parallel.expert_imbalance=$uneven --json >"$tmp/of$uneven"
    done
    "$dpxplan" phases "$tmp/uneven.json" --set roles.policy.even_experts=true --json >"$tmp/even" 2>"$tmp/err"
    ask "$tmp/uneven.json" 0
    holds "[phase['update']['time'][k] for k in ('s', 'low_s', 'high_s')] == [json.load(open('$tmp/of' + n))['time'][k] for n, k in (('2.28', 'step_s'), ('1.30', 'low_s'), ('4.01', 'high_s'))]"
    holds "json.load(open('$tmp/even'))['phases'][1]['time']['s'] == json.load(open('$tmp/of1'))['time']['step_s']"
    holds "[p['needed_bytes'] for p in d['phases']] == [p['needed_bytes'] for p in json.load(open('$tmp/even'))['phases']]"
    holds "phase['log-probs']['time']['low_s'] >= json.load(open('$tmp/even'))['phases'][0]['time']['low_s'] and phase['log-probs']['time']['s'] > json.load(open('$tmp/even'))['phases'][0]['time']['s']"
    # a plan that states it keeps it; two ranks that each have half of the experts get twice the mean at most
    ask "$tmp/uneven.json" 0 --set roles.policy.train.parallel.expert_imbalance=1.5
    holds "phase['update']['time']['high_s'] < json.load(open('$tmp/of4.01'))['time']['high_s']"
    ask "$tmp/uneven.json" 3 --set roles.policy.train.parallel.expert=2
    says 'even_experts: must be true or false' "$tmp/uneven.json" --set roles.policy.even_experts=2
}
check "a mixture's ranks wait for the busiest" "$(uneven_experts)"

# Six GPUs train, two have the reference (seven would not divide a step's 96 samples): all layouts are of eight GPUs and of the same samples a step, and a layout is what its plan is asked alone.
places_searched() {
    sed 's/"cluster": "8xh100"/"cluster": "6xh100", "places": { "other": "2xh100" }/; s/"infer": "actor"/"infer": "actor", "place": "other"/
         s/"micro_batch": 4, "accumulation": 8/"micro_batch": 4, "accumulation": 4/; s/"name": "reference"/"name": "reference", "with_before": true/' demo/grpo.json >"$tmp/places.json"
    ask "$tmp/places.json" 0 --set roles.engine.tensor=1 --search
    holds "{l['others'] for l in d['search']['fit']} == {'other on 2', 'other on 4', 'all roles'}"
    holds "[l['iteration']['s'] for l in d['search']['fit']] == sorted(l['iteration']['s'] for l in d['search']['fit'])"
    holds "all(l['trainer_gpus'] + (l['engine_gpus'] if l['layout'] == 'apart' else 0) + (int(l['others'][-1]) if 'on' in l['others'] else 0) == 8 for l in d['search']['fit'])"
    holds "all(0 <= l['idle'] < 1 and (l['idle'] > 0 or l['others'] == 'all roles') for l in d['search']['fit'])"
    holds "all(l['trainer_gpus'] * l['plan']['roles']['actor']['train']['micro_batch'] * l['plan']['roles']['actor']['train']['accumulation'] == 6 * 4 * 4 for l in d['search']['fit'])"
    for others in 'other on 4' 'all roles'; do
        ask "$tmp/places.json" 0 --set roles.engine.tensor=1 --search
        python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); l = next(l for l in d["search"]["fit"] if l["others"] == sys.argv[2]); print(json.dumps(l["plan"])); print(l["iteration"]["s"], l["needed_bytes"], file=sys.stderr)' \
            "$tmp/doc" "$others" >"$tmp/layout.json" 2>"$tmp/layout"
        ask "$tmp/layout.json" 0
        [ "$(figure "'%s %s' % (d['iteration']['s'], phase[d['largest']]['needed_bytes'])")" = "$(cat "$tmp/layout")" ] || echo "the layout $others is another plan alone"
        holds "('places' in d['plan']) == ('$others' != 'all roles')"
    done
}
check 'layouts of roles with GPUs of their own' "$(places_searched)"

refusals() {
    says 'neither a phase plan' demo/8b-fsdp.json
    says 'a recipe of OpenRLHF' tests/golden/forms/openrlhf/train_dpo.sh
    says 'a recipe of torchtune' tests/golden/forms/torchtune/qwen2_5_3b_async_grpo.yaml
    printf 'seq_len = 2048\n[orchestrator]\nbatch_size = 512\n[trainer]\n[inference]\n' >"$tmp/rl.toml"
    says 'say on which GPUs all of it runs' "$tmp/rl.toml"
    says "weights are handed over between copies of one model" demo/grpo.json --set roles.engine.model=gpt2 roles.engine.tensor=4
    says 'a phase plan has its own cluster' demo/grpo.json --cluster 8xh100
    python3 -c 'import json; d = json.load(open("demo/grpo.json")); d["roles"]["actor"]["train"]["cluster"] = "4xh100"; print(json.dumps(d))' >"$tmp/two.json"
    says 'share all its GPUs' "$tmp/two.json"
    says 'seq 2048 is shorter than a prompt and the longest response, 2560' demo/grpo.json --set response.longest=2048
    ask demo/grpo.json 3 --set roles.engine.gpu_memory_utilization=0.1
    holds "'the longest sequence has' in d['why_not']"
    # the first of two generations has too many responses, the second is fine
    python3 -c 'import json; d = json.load(open("demo/grpo.json")); d["phases"].insert(0, { "generate": "engine", "samples": 2 * 10**9 }); print(json.dumps(d))' >"$tmp/twice.json"
    says 'phases: generate: 500000000 responses of one engine' "$tmp/twice.json"
    says '128 samples are fewer than a step of actor takes, 256' demo/grpo.json --set samples=128
    says '32 samples are fewer than a step of policy takes, 128' "$tmp/grpo.yaml" --cluster 8xh100 --set steps_per_generation=1
    ask "$tmp/grpo.yaml" 0 --cluster 8xh100 --response 200,512 --set generation_batch_size=256
    holds "d['samples'] == 256 and phase['update']['times'] == 2"
    says 'is not KEY=VALUE' demo/grpo.json --set sleep
    says 'samples is no object' demo/grpo.json --set samples.rank=1
}
check 'what cannot be planned is refused by name' "$(refusals)"

finish
