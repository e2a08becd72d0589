#!/bin/sh
# tests/everywhere/manifests.sh -- exported TrainJobs and MPIJobs against the schemas of their CustomResourceDefinitions, unknown fields refused.  The
# definitions are not part of dpx: CRDS=DIR has mpijob.crd.yaml (kubeflow/mpi-operator, manifests/base/kubeflow.org_mpijobs.yaml) and
# trainjob.crd.yaml (kubeflow/trainer, manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml).
. tests/check.sh
B=${B:-build} PYTHON=${PYTHON:-python3}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
XDG_DATA_HOME=/nonexistent
export XDG_DATA_HOME
valid() { "$PYTHON" tests/everywhere/crd.py "$CRDS/$1.crd.yaml" "$2" 2>&1; }
for of in 'trainjob demo/8b-fsdp.json' 'trainjob demo/8b-zero2.json' 'trainjob demo/8b-pipeline.json' 'mpijob demo/gpipe.json'; do
    # shellcheck disable=SC2086 # a kind and a plan
    set -- $of
    if [ ! -e "${CRDS-/nonexistent}/$1.crd.yaml" ] || ! "$PYTHON" -c 'import jsonschema, yaml' 2>/dev/null; then
        skip "$2 as $1" 'CRDS= has no definition, or Python no jsonschema and yaml'
        continue
    fi
    check "$2 as $1, with a time and without" "$(
        for more in '' '--steps 100'; do
            # shellcheck disable=SC2086
            "$B/dpxplan" export "$2" --to "$1" $more >"$tmp/m" 2>"$tmp/err" && valid "$1" "$tmp/m" || cat "$tmp/err"
        done
        sed 's/^spec:/spec:\n  notAField: 1/' "$tmp/m" >"$tmp/wrong"
        valid "$1" "$tmp/wrong" | grep -q notAField || echo 'an unknown field is taken')"
done
if [ -e "${CRDS-/nonexistent}/trainjob.crd.yaml" ]; then
    check 'the TrainJob that admit is tested with' "$(valid trainjob tests/everywhere/jobs/trainjob-patched.yaml)"
fi
finish
