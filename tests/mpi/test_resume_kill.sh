#!/bin/sh
# tests/mpi/test_resume_kill.sh -- ranks are killed in the middle of steps and in the middle of a save: the last checkpoint is whole, the run
# goes on bit for bit, and what is not that run's, or damaged, is refused by one line.
# Runs from the root of the tree; $B is where it was built.
# shellcheck source=tests/mpi/faults.sh
. tests/mpi/faults.sh
saved=$dir/saved

# run ARGUMENT...: to its end; dpxrun's status.
run() { "$dir/dpxrun" "$@" --no-db --threads 1 >"$dir/out" 2>"$dir/said" </dev/null; }
newest() { find "$saved" -maxdepth 1 -name 'step-*[0-9]' 2>/dev/null | sort | tail -n 1; }
# What said in one line, with status 2 and before any rank trains.
refused() {     # WHAT CULPRIT ARGUMENT...
    what=$1 culprit=$2
    shift 2
    run "$@"
    status=$?
    check "$what" "$([ $status = 2 ] || echo "exit status $status"
        [ "$(wc -l <"$dir/said")" = 1 ] && grep -q "$culprit" "$dir/said" || head -n 5 "$dir/said")"
}

# ---- killed in the middle of the steps, again and again ----

STEPS=600
run "$dir/plan.json" --steps $STEPS --save "$dir/whole" || cat "$dir/said"
again() { start "$dir/dpxrun" "$dir/plan.json" --steps $STEPS --db "$dir/db" --threads 1 --checkpoint-every 40 --checkpoint-dir "$saved" --resume --save "$dir/resumed"; }
was=
moved_on() { [ "$(newest)" != "$was" ] || ended; }
for r in 0 1 0; do
    was=$(newest)
    again
    await 60 moved_on
    kill_rank 9 $r
    await 20 ended
    await 5 none_left
    check "rank $r killed leaves a whole checkpoint" "$([ -s "$(newest)/checkpoint.json" ] && [ -s "$(newest)/rank-00001.state" ] || find "$saved")"
done
again
await 120 ended
check 'a run that was killed three times ends as the one that never was' "$([ "$(cat "$dir/status")" = 0 ] || cat "$dir/said"
    cmp "$dir/whole" "$dir/resumed")"
check 'the last two checkpoints are kept' "$(find "$saved" -maxdepth 1 -name 'step-*' | sort | tr '\n' ' ' |
    grep -vx "$saved/step-00000520 $saved/step-00000560 ")"

check 'the page of the last run has what it loaded and saved' "$("$B/dpxreport" --db "$dir/db" --run 4 -o "$dir/page" >/dev/null
    grep -c '^4\..*,loaded,' "$dir/page/csv/checkpoints.csv" | grep -vx 1
    awk -F, 'NR > 1 && $6 != $7 { print }' "$dir/page/csv/checkpoints.csv"
    grep -q '^4\.560\.saved,' "$dir/page/csv/checkpoints.csv" || cat "$dir/page/csv/checkpoints.csv")"
if command -v sqlite3 >/dev/null; then
    check 'runs that were killed keep the rows of what they had saved' "$(
        for id in 1 2 3; do
            [ "$(sqlite3 "$dir/db" "SELECT count(*) > 0 FROM checkpoint WHERE run = $id AND NOT loaded")" = 1 ] || echo "run $id has none"
        done)"
else
    skip 'runs that were killed keep the rows of what they had saved' 'needs sqlite3'
fi

# ---- killed in the middle of a save ----

half() { find "$saved" -path '*.partial/rank-*' -size +1000k 2>/dev/null | grep -q . || ended; }
rm -rf "$saved"
run "$dir/large.json" --steps 4 --save "$dir/whole" || cat "$dir/said"
run "$dir/large.json" --steps 4 --checkpoint-every 2 --checkpoint-dir "$saved" || cat "$dir/said"
for r in 0 1; do
    rm -rf "$saved"/*.partial
    first=$(find "$saved" -name 'rank-*' -exec cksum {} + | sort)
    start "$dir/dpxrun" "$dir/large.json" --steps 4 --no-db --threads 1 --checkpoint-every 3 --checkpoint-dir "$saved" --resume
    await 60 half
    kill_rank 9 $r
    await 20 ended
    await 5 none_left
    check "rank $r killed in the middle of a save leaves the checkpoint before it as it was" "$(
        find "$saved" -path '*.partial/*' | grep -q . || echo 'the save was over'
        find "$saved" -path '*2/rank-*' -exec cksum {} + | sort >"$dir/now"; echo "$first" | grep '2/rank-' | diff - "$dir/now")"
done
run "$dir/large.json" --steps 4 --checkpoint-every 3 --checkpoint-dir "$saved" --resume --save "$dir/resumed" || cat "$dir/said"
check 'and the run goes on from it bit for bit' "$(cmp "$dir/whole" "$dir/resumed")"
check 'what was half written is removed by the next save' "$(find "$saved" -name '*.partial')"

# ---- what is not its run, or damaged ----

rm -rf "$saved"
run "$dir/plan.json" --steps 6 --checkpoint-every 4 --checkpoint-dir "$saved" || cat "$dir/said"
at="--checkpoint-dir $saved --resume"
sed 's/localhost:2/localhost:3/' "$dir/plan.json" >"$dir/three.json"
sed 's/"fsdp"/"ddp"/' "$dir/plan.json" >"$dir/other.json"
# shellcheck disable=SC2086
{
    refused 'another number of ranks is refused' 'step-00000004: is of another run: the number of ranks was 2, here it is 3' "$dir/three.json" --steps 6 $at
    refused 'so is another plan' "is of another run: the plan's.strategy was .fsdp., here it is .ddp." "$dir/other.json" --steps 6 $at
    refused 'another learning rate' 'is of another run: --lr was 0.0006, here it is 0.001' "$dir/plan.json" --steps 6 --lr 1e-3 $at
    refused 'another number of steps, by which the learning rate falls' 'is of another run: --steps was 6, here it is 8' "$dir/plan.json" --steps 8 $at
    refused 'another seed' 'is of another run: --seed was 1, here it is 2' "$dir/plan.json" --steps 6 --seed 2 $at
    refused 'other data' 'is of another run: --data was none' "$dir/plan.json" --steps 6 --data "$dir/dpxrun" $at
    refused '--comm null has no state' 'with --comm null' "$dir/plan.json" --steps 6 --comm null $at
    refused 'a folder of checkpoints without checkpoints' 'add --checkpoint-every' "$dir/plan.json" --steps 6 --checkpoint-dir "$saved"
    refused 'a file in the place of the folder' 'not a folder' "$dir/plan.json" --steps 6 --checkpoint-dir "$dir/plan.json" --checkpoint-every 2
    state=$saved/step-00000004/rank-00001.state
    cp "$state" "$dir/state"
    printf x | dd of="$state" bs=1 seek=5000 conv=notrunc 2>/dev/null
    refused 'a byte that changed' 'rank 1: .*rank-00001.state: is damaged' "$dir/plan.json" --steps 6 $at
    head -c 6000 "$dir/state" >"$state"
    refused 'a file that is too short' 'rank-00001.state: ends too early' "$dir/plan.json" --steps 6 $at
    cp "$saved/step-00000004/rank-00000.state" "$state"
    refused "another rank's file" 'rank-00001.state: ' "$dir/plan.json" --steps 6 $at
    rm "$state"
    refused 'a file that is not there' 'rank-00001.state' "$dir/plan.json" --steps 6 $at
    cp "$dir/state" "$state"
    run "$dir/plan.json" --steps 6 $at
    check 'and whole again it is taken' "$([ $? = 0 ] || cat "$dir/said")"
}
rm -rf "$saved"
run "$dir/plan.json" --steps 2 --resume --checkpoint-dir "$saved"
check '--resume without a checkpoint begins, and says so' "$([ $? = 0 ] && grep -q 'holds no checkpoint' "$dir/said" || cat "$dir/said")"

if mount -t tmpfs -o size=2m none "$full" 2>/dev/null; then
    run "$dir/plan.json" --steps 6 --checkpoint-every 2 --checkpoint-dir "$full"
    dd if=/dev/zero of="$full/filler" bs=4k 2>/dev/null
    start "$dir/dpxrun" "$dir/plan.json" --steps 6 --no-db --checkpoint-every 2 --checkpoint-dir "$full"
    check 'a disk that is full ends the run in one line' "$(judge 30 1 'state: No space left')"
    check 'and the checkpoint before it is there' "$([ -s "$full/step-00000004/checkpoint.json" ] || find "$full")"
else
    skip 'a disk that is full' 'mounting a small one needs root'
fi
finish
