# stage_memory.sh -- the first meter equals the ledger, what the driver says is within 3 % of what was
# predicted; rank 0 of many, with compute, by collectives that move nothing.
# shellcheck shell=sh disable=SC2154,SC2015,SC2086
# meters NAME MODEL SEQ MICRO_BATCH RANKS KEYS: runs it aside; report() says what it showed.
meters() {
    echo "$1" >>"$dir/order"
    if [ -s "$dir/$1.json" ] && [ -e "$dir/$1.done" ]; then return; fi
    enough 25 || return 0
    plan "$dir/$1.plan" "$(cluster "$5")" "$2" "$3" "$4" "$6"
    null=''
    [ "$5" = 1 ] || null='--comm null --rank 0'
    aside metered "$1"
}
metered() {
    run "$dir/$1" "$dir/$1.plan" --device cuda --no-db --steps 3 $null >"$dir/$1.wrong"
    [ -s "$dir/$1.wrong" ] || : >"$dir/$1.done"
}
report() {
    name=$1
    [ -e "$dir/$name.wrong" ] || return
    [ -e "$dir/$name.done" ] || { check "$name runs" "$(cat "$dir/$name.wrong")"; return; }
    j=$dir/$name.json
    allocated=$(number allocated_peak_bytes "$j") ledger=$(number predicted_allocated_peak_bytes "$j")
    process=$(number process_peak_bytes "$j") predicted=$(number predicted_process_bytes "$j")
    check "$name: allocated is the ledger's" "$([ "${allocated:-0}" = "${ledger:-1}" ] || echo "$allocated, not $ledger")"
    # A context and a library's first use are more than 3 % of a small run.
    if [ "${predicted:-0}" -lt 2000000000 ]; then
        skip "$name: the driver's figure" "$predicted bytes are too few to tell 3 %"
    elif [ "$process" = null ]; then
        skip "$name: the driver's figure" 'it is not known'
    else
        check "$name: the driver's figure is within 3 %" "$(awk -v a="$process" -v b="$predicted" 'BEGIN {
            if (a > 1.03 * b || a < 0.97 * b) print a " bytes, predicted " b }')"
    fi
    printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$allocated" "$ledger" "$process" "$predicted" >>"$dir/table.new"
}
: >"$dir/table.new"
if [ "${EMU:-}" ]; then                 # as far as an emulator is quick enough
    gpt_large=$(gpt 2 64 2 64 256) llama_large=$(llama 2 64 2 1 176 256) seq=32 batch=1 sizes='1 8'
else
    gpt_large=$(gpt 12 768 12 1024 50257) llama_large=$(llama 24 2048 16 8 5632 32000) seq=1024 batch=4
    sizes='1 2 8 64 512'
fi
for n in $sizes; do
    meters "fsdp-llama-bf16-of-$n" "$llama_large" $seq 1 "$n" '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16"'
    meters "zero3-gpt-bf16-of-$n" "$gpt_large" $seq $batch "$n" '"strategy": "zero3", "dialect": "deepspeed", "precision": "bf16"'
    meters "zero1-gpt-fp32-of-$n" "$gpt_large" $seq $batch "$n" '"strategy": "zero1", "dialect": "deepspeed"'
    meters "zero2-llama-bf16-of-$n" "$llama_large" $seq 1 "$n" '"strategy": "zero2", "dialect": "deepspeed", "precision": "bf16"'
    meters "ddp-gpt-bf16-of-$n" "$gpt_large" $seq $batch "$n" '"strategy": "ddp", "dialect": "torch", "precision": "bf16"'
done
meters fsdp-llama-recompute "$llama_large" $seq 2 1 '"strategy": "fsdp", "dialect": "torch", "unit": "block", "precision": "bf16", "recompute": "full"'
wait
while read -r name; do report "$name"; done <"$dir/order"
{ echo "plan${tab}allocated${tab}ledger${tab}driver${tab}predicted"; cat "$dir/table.new"; } >"$dir/table.tsv"
cat "$dir/table.tsv"
