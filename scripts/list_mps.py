"""List what each op needs that torch lacks on Apple GPUs (MPS), by torch's own list of operators; nothing runs there.

    python scripts/list_mps.py
    python scripts/list_mps.py --json datasets/profiles/mps_operators.json        what the documentation shows

Each op is run on a CPU by its torch operations. An operator is missing if torch's native_functions.yaml names neither
an MPS kernel for it nor one that is composed of others; float64 and complex128 are missing altogether.
"""

import functools
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torchgen
import yaml
from bench_engine_work import CHANNELS, declared_ops
from compact_records import write_compact
from torch.utils._pytree import tree_leaves

from audioaug import Chain, build_device
from audioaug.core import Op, why_not_on_device
from audioaug.dsp import dispatch
from audioaug.internals import DispatchMode

RATE, SAMPLES = 16000, 12000
RECORD = Path(__file__).resolve().parents[1] / "datasets/profiles/mps_operators.json"
IMPLICIT, EXPLICIT = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
"""The keys, and how they begin, of operators that are composed of others."""
WIDE = {torch.float64, torch.complex128}


@functools.cache
def operators() -> dict[str, dict[str, Any]]:
    """Return torch's operators by name and overload, as its list declares them."""
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    declared = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {each["func"].partition("(")[0]: each for each in declared}


def runs_on_mps(name: str) -> bool:
    """Return whether an operator, such as ``add.Tensor``, has a kernel for MPS, or consists of others."""
    found = operators().get(name)
    if found is None:
        return True  # not one of ATen's: nothing is known
    if "structured_delegate" in found:
        return runs_on_mps(found["structured_delegate"])
    kernels = found.get("dispatch")
    if kernels is None:
        return True  # composed of others
    devices = {device.strip() for keys in kernels for device in keys.split(",")}
    return any(device in ("MPS", IMPLICIT) or device.startswith(EXPLICIT) for device in devices)


class Missing(DispatchMode):
    """Notes the operators that are missing on MPS."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.").removesuffix(".default")
        if not runs_on_mps(name):
            self.found.add(name)
        tensors = (each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor))
        self.found.update(str(each.dtype).removeprefix("torch.") for each in tensors if each.dtype in WIDE)
        return result


def missing(op: Op) -> list[str]:
    """Return what an op needs and MPS lacks."""
    shape, chain, watch = (4, CHANNELS.get(op.name, 1), SAMPLES), Chain([op], RATE), Missing()
    module = build_device(chain)
    x_BCT = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 0.1
    prepared = module.prepare(chain.draw(np.arange(shape[0])), shape, lengths=[SAMPLES, 9000, SAMPLES, 700])
    with dispatch.backend("torch"), watch:
        module.augment(x_BCT, prepared)
    return sorted(watch.found)


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--json", "json_", metavar="FILE", help="Write the list.")
def main(json_: str | None) -> None:
    """Print a line for each op."""
    every = {name: missing(op) for name, op in declared_ops([], RATE).items() if not why_not_on_device(op)}
    for name, lacks in every.items():
        print(f"{name}: {', '.join(lacks) or 'all there'}")
    if json_:
        write_compact({"schema_version": 1, "torch": str(torch.__version__), "missing": every}, json_)


if __name__ == "__main__":
    sys.exit(main())
