"""Split: both parts of a chain at a plan's cut, for those who keep their own DataLoader."""

import typing

from audioaug.core import Chain
from audioaug.engine.checks import check_engine
from audioaug.engine.cpu import WorkerChain, build_cpu
from audioaug.engine.device import DeviceChain, build_device
from audioaug.errors import PlanError
from audioaug.records import DeviceEngine, Plan, WorkerEngine


def split(chain: Chain, plan: Plan, seed: int | None = None) -> tuple[WorkerChain, DeviceChain]:
    """Build the worker part and the device part of a chain.

    The parts share their draws: give the worker each example's ``key`` and ``epoch``, and the module the same of the
    whole batch.

    Args:
        chain: the declaration.
        plan: where to cut it, and with which engine to run the device part.
        seed: of the training run; 0 by default.

    Raises:
        PlanError: the plan was made for another chain, the chain cannot be cut there, or the worker part cannot be
            called on a clip, since its engine runs on collated batches.
    """
    check_plan(chain, plan)
    worker, on_batches = build_worker(chain, plan, seed)
    if on_batches is not None:
        call = f"audioaug.build_device(chain, start={worker.cut}, stop={plan.cut})"
        raise PlanError(
            "With worker_engine='batched' the worker part runs on collated batches: it cannot be called on a clip.",
            f"Use audioaug.Loader, or call {call} in your own collate_fn.",
        )
    return worker, build_device(chain, plan.cut, plan.device_engine, seed)


def build_worker(
    chain: Chain, plan: Plan, seed: int | None = None, on_clips: int = 0
) -> tuple[WorkerChain, DeviceChain | None]:
    """Build what a worker runs: on each clip, and then, with the batched engine, on the collated batch.

    Ops without a batched build, and those before them, run on clips with either engine; so do the first ``on_clips``.
    """
    on_clips = min(plan.cut, max(chain.device_from, on_clips)) if plan.worker_engine == "batched" else plan.cut
    on_batches = build_device(chain, on_clips, seed=seed, stop=plan.cut) if on_clips < plan.cut else None
    return build_cpu(chain, on_clips, seed), on_batches


def check_plan(chain: Chain, plan: Plan) -> None:
    """Raise ``PlanError`` if the plan was made for another chain or asks for what there is not."""
    if plan.chain_hash and plan.chain_hash != chain.hash:
        raise PlanError(
            f"This plan was made for the chain {plan.chain_hash}, but this chain is {chain.hash}.",
            "Run the advisor again for it.",
        )
    check_engine("worker", plan.worker_engine, typing.get_args(WorkerEngine))
    check_engine("device", plan.device_engine, typing.get_args(DeviceEngine))
    chain.checked_cut(plan.cut)
