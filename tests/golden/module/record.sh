#!/bin/sh
# Records the modules of modules.py: one file each, here.    record.sh [NAME ...]     PYTHON: one with torch, transformers, diffusers, torchvision
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python3}
for name in ${@:-$($python -c 'import modules; print(*modules.CASES)')}; do
    PYTHONPATH=../../../lib $python -m dpx_record.record "modules:$name" -o "$name.json" --name "$name" \
        --precision bf16,autocast $($python -c "import modules; print(modules.CASES['$name'][0])")
done
