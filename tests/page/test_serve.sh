#!/bin/sh
# tests/page/test_serve.sh -- dpxplan serve: its page in Chromium, with the native library, a database and a recorded run.  What attacks its
# server is tests/sim/test_http.c.  Skipped by name where dpxplan was built without libmicrohttpd, or node or Chromium is not there.
. tests/check.sh
B=${B:-build}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

if "$B/dpxplan" serve --port 70000 2>&1 | grep -q 'built without libmicrohttpd'; then
    skip 'dpxplan serve' 'built without libmicrohttpd'
    finish
fi
check 'what it cannot listen on, or read, is refused by name' "$(
    "$B/dpxplan" serve --port 70000 2>&1 | grep -vxF 'dpx: --port 70000: 65535 at most'
    "$B/dpxplan" serve --db "$scratch/none.db" >"$scratch/out" 2>&1
    [ $? = 2 ] && grep -q 'none.db: No such file' "$scratch/out" || cat "$scratch/out")"
if ! command -v node >/dev/null || ! command -v chromium >/dev/null; then
    skip 'the page of dpxplan serve' 'there is no node or no chromium'
    finish
fi

# A run of two ranks, where there is a dpxrun with a launcher.
db=
cat >"$scratch/tiny.json" <<'END'
{"dpx_plan": 1, "model": {"model_type": "llama", "_name_or_path": "<b>tiny</b>", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128,
 "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128}, "cluster": "localhost:2", "strategy": "ddp",
 "dialect": "paper", "precision": "fp32", "seq": 32, "micro_batch": 1}
END
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$B/dpxrun" "$scratch/tiny.json" --steps 3 --db "$scratch/runs.db" >/dev/null 2>&1 &&
    db=$scratch/runs.db
cp "$db" "$scratch/before.db" 2>/dev/null
XDG_DATA_HOME=$scratch/home "$B/dpxplan" serve ${db:+--db "$db"} >"$scratch/address" 2>"$scratch/said" &
server=$!
for i in 1 2 3 4 5 6 7 8 9 10; do [ -s "$scratch/address" ] && break; sleep 0.3; done
node tests/page/serve.js "$(cat "$scratch/address")" "$db" >"$scratch/told" 2>&1
while IFS= read -r line; do
    case $line in
    'ok '*) check "${line#ok }" '' ;;
    *)      check "${line#not ok }" "$line" ;;
    esac
done <"$scratch/told"
kill -INT $server
wait $server
rc=$?
check 'Ctrl-C ends it, with 0' "$([ $rc = 0 ] || echo "exit status $rc")"
check 'nothing was written' "$(find "$scratch/home" 2>/dev/null; [ -z "$db" ] || cmp "$db" "$scratch/before.db" 2>&1)"
finish
