"""Split: both parts of a chain at a plan's cut, for those who keep their own DataLoader."""

import typing

from audioaug.build.cpu import WorkerChain, build_cpu
from audioaug.build.device import DeviceChain, build_device
from audioaug.core import Chain
from audioaug.errors import PlanError, did_you_mean
from audioaug.records import DeviceEngine, Plan


def split(chain: Chain, plan: Plan, seed: int = 0) -> tuple[WorkerChain, DeviceChain]:
    """Build the worker part and the device part of a chain.

    The parts share their draws: give the worker each example's index and epoch, and the module
    ``draws=chain.draw(indices, epoch, seed)`` for the same examples.

    Args:
        chain: the declaration.
        plan: where to cut it, and with which engine to run the device part.
        seed: of the training run.

    Raises:
        PlanError: the plan was made for another chain, or the chain cannot be cut there.
    """
    check_plan(chain, plan)
    return build_cpu(chain, plan.cut, seed), build_device(chain, plan.cut, plan.device_engine, seed)


def check_plan(chain: Chain, plan: Plan) -> None:
    """Raise ``PlanError`` if the plan was made for another chain or asks for what there is not."""
    if plan.chain_hash and plan.chain_hash != chain.hash:
        raise PlanError(
            f"This plan was made for the chain {plan.chain_hash}, but this chain is {chain.hash}.",
            "Run the advisor again for it.",
        )
    if plan.worker_engine != "audiomentations":
        raise PlanError(f"There is no worker engine {plan.worker_engine!r} yet.", "Use 'audiomentations'.")
    if plan.device_engine not in typing.get_args(DeviceEngine):
        raise PlanError(
            f"There is no device engine {plan.device_engine!r}.",
            did_you_mean(plan.device_engine, typing.get_args(DeviceEngine)),
        )
    chain.checked_cut(plan.cut)
