#!/usr/bin/env bash
# Check audioaug on a machine with a GPU, in ten minutes, and keep what was measured: one result.json with card, driver,
# versions, date and the outcome of each step, and one logs.tar.gz.
#
#   scripts/check_gpu.sh FOLDER       needs no network; uses .venv if there is one, else python3
#
# A machine that has torch and torchaudio, but not the rest, takes it from wheels that are collected where there is a
# network; for the machine's Python (3.12, say):
#   grep -viE '^(torch|torchaudio|triton|nvidia|cuda)' constraints.txt >build/rest.txt
#   pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels -r build/rest.txt
#   pip install --no-index --no-deps --ignore-installed wheels/*.whl       (there)
#
# Every step has its own time limit and runs whatever became of the ones before, while there is time left; the exit code
# says whether all of them passed. Variables: DEVICE (cpu rehearses this where there is no GPU), LIMIT (seconds of the
# whole, 600), BUDGET (seconds of the advisor for each example, 20), BENCH and VERIFY (further options).
set -u
out=${1:?usage: scripts/check_gpu.sh FOLDER}
mkdir -p "$out" && out=$(cd "$out" && pwd) && cd "$(dirname "$0")/.." || exit 2
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
device=${DEVICE:-cuda} limit=${LIMIT:-600} budget=${BUDGET:-20}
python=python3
[ -x .venv/bin/python ] && python=.venv/bin/python
rm -f "$out"/*.log
: >"$out/steps.txt"

# step NAME SECONDS COMMAND...: run the command for at most that many seconds, and no longer than the whole may take.
step() {
    local name=$1 start=$SECONDS left=$((limit - SECONDS))
    local most=$(($2 < left ? $2 : left))
    shift 2
    rm -f "$out/$name.json"
    if [ "$left" -lt 5 ]; then
        result="skipped (no time left)"
    else
        timeout --kill-after=5 "$most" "$@" >"$out/$name.log" 2>&1
        case $? in 0) result=passed ;; 124 | 137) result="failed (more than $most s)" ;; *) result="failed ($?)" ;; esac
    fi
    echo "$name: $result, $((SECONDS - start)) s" | tee -a "$out/steps.txt"
    [ "$result" = passed ] || [ ! -f "$out/$name.log" ] || tail -n 15 "$out/$name.log"
}

code() {  # code NAME SECONDS [VARIABLE=VALUE...]: a step of check_gpu_steps.py, which writes NAME.json
    local name=$1 most=$2
    shift 2
    step "$name" "$most" env "$@" $python scripts/check_gpu_steps.py "${name%%_*}" --device "$device" \
        --json "$out/$name.json"
}

cold=$(mktemp -d)
trap 'rm -rf "$cold"' EXIT
tests=(tests/contract/engine/test_no_copies.py)
[ "$device" = cpu ] ||
    tests=(-p no:benchmark -m "cuda and not slow" $(grep -rlE "mark\.cuda|needs_cuda" --include=*.py tests))
# What is not timed runs side by side. Nothing is compiled yet; and without a C compiler, torch operations must run.
step doctor 150 env TRITON_CACHE_DIR="$cold/self-test" XDG_CACHE_HOME="$cold/self-test" \
    $python -m audioaug.doctor --self-test &
code smoke 150 TRITON_CACHE_DIR="$cold/smoke" XDG_CACHE_HOME="$cold/smoke" &
code smoke_without_compiler 150 TRITON_CACHE_DIR="$cold/none" XDG_CACHE_HOME="$cold/none" CC=/nonexistent/cc &
code syncs 150 &
code capture 150 &
step tests 150 $python -m pytest -q "${tests[@]}" &
step verify 200 $python -m audioaug.verify --device "$device" --json "$out/verify.json" ${VERIFY:-} &
if [ "$device" != cpu ] && command -v compute-sanitizer >/dev/null; then
    step sanitizer 150 compute-sanitizer --error-exitcode 1 $python -m audioaug.doctor --self-test &
fi
wait
for name in memory epochs profile; do
    code "$name" 45
done
for run in cold warm; do
    step "advisor_$run" 60 $python -m audioaug.advise --model scripts/models/keyword_cnn.py --device "$device" \
        --budget "$budget" --json "$out/advisor_$run.json" --plan "$out/advisor_$run.plan.json"
done
batch=128
[ "$device" = cpu ] && batch=8
step bench 320 $python scripts/bench_engine.py --device "$device" --json "$out/bench.json" \
    ${BENCH:---batch $batch --seconds-per-op 0.2 --most-seconds 5 --also cuda_graph}
limit=$((SECONDS + 60)) # the results are kept however long it took
step gather 30 $python scripts/gather_results.py "$out" --device "$device"
(cd "$out" && tar czf logs.tar.gz ./*.log)
failed=$(grep -v ": passed" "$out/steps.txt" | cut -d: -f1 | tr '\n' ' ')
echo "failed: ${failed:-none}; all results: $out/result.json, all logs: $out/logs.tar.gz"
[ -z "$failed" ]
