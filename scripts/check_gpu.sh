#!/usr/bin/env bash
# Check audioaug on a machine with a GPU and keep what was measured: tests, equivalence, the engine beside the other
# libraries, the main job on both examples. FOLDER/result.json then holds all of it, with card, driver, versions and date.
#
#   scripts/check_gpu.sh FOLDER       needs no network; uses .venv if there is one, else python3
#
# Every step runs, whatever became of the ones before; the exit code says whether all of them passed. Variables: DEVICE
# (cpu rehearses this where there is no GPU), BENCH and VERIFY (further options), BUDGET (seconds for each example).
set -u
out=${1:?usage: scripts/check_gpu.sh FOLDER}
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$(dirname "$0")/.." || exit 2
export PYTHONPATH=$PWD
device=${DEVICE:-cuda}
python=python3
[ -x .venv/bin/python ] && python=.venv/bin/python
failed=()
: >"$out/steps.txt"

step() {
    local name=$1 start=$SECONDS
    shift
    rm -f "$out/$name.json"
    "$@" >"$out/$name.log" 2>&1 && result=passed || { result="failed ($?)"; failed+=("$name"); }
    echo "$name: $result, $((SECONDS - start)) s" | tee -a "$out/steps.txt"
    [ "$result" = passed ] || tail -n 15 "$out/$name.log"
}

step doctor $python -m audioaug.doctor
tests=(-m "cuda and not slow")
[ "$device" = cpu ] && tests=(tests/contract/engine/test_no_copies.py)
step tests $python -m pytest -q "${tests[@]}"
step verify $python -m audioaug.verify --device "$device" --json "$out/verify.json" ${VERIFY:-}
step bench $python scripts/bench_engine.py --device "$device" --json "$out/bench.json" \
    ${BENCH:---batch 128 --sweep --also cuda_graph,torch_compile}
for model in keyword_cnn raw_waveform; do
    step "$model" $python -m audioaug.advise --model "scripts/models/$model.py" --device "$device" \
        --budget "${BUDGET:-60}" --json "$out/$model.json" --plan "$out/$model.plan.json"
done
step gather $python scripts/gather_results.py "$out" --device "$device"
echo "failed: ${failed[*]:-none}; all results: $out/result.json"
[ ${#failed[@]} -eq 0 ]
