#!/bin/sh
# tests/lib/test_mcp.sh -- dpxplan mcp by a scripted client: tools, schemas, answers, errors, the end.
. tests/check.sh
B=${B:-build}
what='tools answer, schemas take what is asked, mistakes are named'
XDG_DATA_HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1
export XDG_DATA_HOME PYTHONDONTWRITEBYTECODE
if command -v python3 >/dev/null; then
    check "$what" "$(python3 tests/lib/mcp_client.py "$B/dpxplan" demo/8b-fsdp.json 2>&1)"
else
    skip "$what" 'no python3'
fi
finish
