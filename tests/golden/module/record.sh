#!/bin/sh
# Records the modules of modules.py: one file each, here.    record.sh [NAME ...]     PYTHON: one with torch, transformers, diffusers, torchvision
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python3} out=$(mktemp -d)
$python ../../recorded/record.py modules.py -o "$out" -- ${@:-$($python -c 'import modules; print(*modules.CASES)')}
cp "$out"/*.json .
rm -r "$out"
