#!/usr/bin/env bash
# Check audioaug on a machine with a GPU and keep what was measured: tests, equivalence, the main job on both examples.
#
#   scripts/check_gpu.sh FOLDER       needs no network; uses .venv if there is one, else python3
#
# Every step runs, whatever became of the ones before; the exit code says whether all of them passed.
set -u
out=${1:?usage: scripts/check_gpu.sh FOLDER}
cd "$(dirname "$0")/.." && mkdir -p "$out"
python=python3
[ -x .venv/bin/python ] && python=.venv/bin/python
failed=()

step() {
    local name=$1 start=$SECONDS
    shift
    "$@" >"$out/$name.log" 2>&1 && result=passed || { result="FAILED ($?)"; failed+=("$name"); }
    echo "$name: $result, $((SECONDS - start)) s"
    [ "$result" = passed ] || tail -n 15 "$out/$name.log"
}

step doctor $python -m audioaug.doctor
step tests $python -m pytest -q -m cuda
step verify $python -m audioaug.verify --device cuda --json "$out/verify.json"
for model in keyword_cnn raw_waveform; do
    step "$model" $python -m audioaug.advise --model "scripts/models/$model.py" --device cuda \
        --budget "${BUDGET:-60}" --json "$out/$model.json" --plan "$out/$model.plan.json"
done
echo "failed: ${failed[*]:-none}"
[ ${#failed[@]} -eq 0 ]
