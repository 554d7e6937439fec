#!/usr/bin/env bash
# Install audioaug from this checkout into a virtual environment, for the Makefile:
#
#   scripts/set_up.sh .venv-demo     what the package needs, for `make demo`; without an NVIDIA GPU, a CPU build of torch
#   scripts/set_up.sh .venv torch-audiomentations,dev    these extras too, all in the versions of constraints.txt
#
# PYTHON names the Python that makes the environment. uv installs where it is there, pip otherwise.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=$1
EXTRAS=${2:-}
PYTHON=${PYTHON:-python3}
CPU_INDEX=https://download.pytorch.org/whl/cpu

say() { echo "setup: $*"; }
fail() { echo "$*" >&2; exit 1; }

check_python() {
    command -v "$PYTHON" >/dev/null ||
        fail "$PYTHON is not installed: install Python 3.10 or newer, or name one: make setup PYTHON=/path/to/python3.12"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$PYTHON" --version) is too old: audioaug needs 3.10 or newer. Name one: make setup PYTHON=/path/to/python3.12"
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$PYTHON cannot make virtual environments: on Debian and Ubuntu, run: apt-get install python3-venv"
}

pip() { "$VENV/bin/python" -m pip "$@"; }

install() {
    if command -v uv >/dev/null; then
        uv pip install --python "$VENV/bin/python" "$@" && return
        say "uv failed; trying pip, which has a configuration of its own"
    fi
    pip install --progress-bar off "$@" | awk '
        /(Downloading|Using cached) .*[0-9] MB\)/ {print "  " $0; fflush()}
        /^Installing collected/ {print "setup: unpacking"; fflush()}'
}

# Print the CPU build of torch to install and where it is, or nothing: the tested version, else the newest. pip is asked
# with its own configuration first, then with PyTorch's index, which may be out of reach.
cpu_torch() {
    local tested versions index
    tested=$(sed -n 's/^torch==//p' constraints.txt)
    for index in "" "--extra-index-url=$CPU_INDEX"; do
        versions=$(timeout 60 "$VENV/bin/python" -m pip index versions torch --retries 0 --timeout 15 $index 2>/dev/null |
            grep -o '[0-9][0-9.]*+cpu' | awk '!seen[$0]++') || continue
        grep -qxF "$tested+cpu" <<<"$versions" && versions=$tested+cpu
        echo "torch==$(head -n 1 <<<"$versions") $index"
        return
    done
}

check_python
pip --version >/dev/null 2>&1 || { say "making $VENV with $("$PYTHON" --version)"; "$PYTHON" -m venv --clear "$VENV"; }
CONSTRAINTS=constraints.txt
TORCH=""
if [ -z "$EXTRAS" ] && ! nvidia-smi -L >/dev/null 2>&1; then TORCH=$(cpu_torch); fi
if [ -n "$TORCH" ]; then
    say "no NVIDIA GPU: installing a CPU build, ${TORCH%% *}"
    CONSTRAINTS=$VENV/constraints.txt
    grep -v '^torch' constraints.txt >"$CONSTRAINTS"
    install --no-deps $TORCH
else
    say "installing torch with its CUDA libraries, about 3 GB to download"
fi
install -c "$CONSTRAINTS" -e ".${EXTRAS:+[$EXTRAS]}"
if [[ ",$EXTRAS," == *,dev,* ]]; then # of tqdm and pyarrow, Daft wants older versions than the others, but runs with these
    install --no-deps daft==0.7.26
    # With torchcodec, other libraries decode differently: the tests of AudioFolder(decoder="fastest") look for it here.
    "$VENV/bin/python" -m pip install -q --no-deps --upgrade --target "$VENV/torchcodec" torchcodec==0.11.1 ||
        say "there is no torchcodec here; a test of it will be skipped"
fi
touch "$VENV/.setup-done"
say "done"
