#!/bin/sh
# tests/lib/test_schema.sh -- dpxplan schema: it takes every plan that dpxplan writes, and refuses what it cannot mean.
. tests/check.sh
B=${B:-build}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
what='plans of the demo and of searches are taken, wrong ones refused'
XDG_DATA_HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1
export XDG_DATA_HOME PYTHONDONTWRITEBYTECODE
if command -v python3 >/dev/null; then
    check "$what" "$(python3 tests/lib/schema_client.py "$B/dpxplan" 2>&1)"
else
    skip "$what" 'no python3'
fi

named() {
    sed '1s/{/{ "$schema": "plan.schema.json",/' demo/8b-fsdp.json >"$tmp/plan.json"
    "$B/dpxplan" eval "$tmp/plan.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
    "$B/dpxplan" list clusters --example | sed '1s/{/{ "$schema": "cluster.schema.json",/' >"$tmp/cluster.json"
    "$B/dpxplan" eval gpt2 --cluster "$tmp/cluster.json" >"$tmp/out" 2>&1 || cat "$tmp/out"
}
check '$schema may stand in plans and cluster files' "$(named)"
finish
