"""Epochs: how actors on other nodes get to know which epoch the training is in."""

from typing import Any

from audioaug.errors import WorkerError, first_line


class SharedEpoch:
    """The number of the epoch, for the actors of a dataset that Ray executes again in every epoch.

    Give the same one to ``Augment`` and to ``batches``, which sets it when an epoch begins; actors start with an epoch
    and read it then. A process on the node that made it keeps it, for as long as there is a copy of this object.

    Raises:
        WorkerError: that process has ended.
    """

    def __init__(self) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor: Any = ray.remote(_Number)
        self._kept = actor.options(num_cpus=0, scheduling_strategy=here).remote()

    def set(self, epoch: int) -> None:
        """Set the epoch, for all actors that start from now on."""
        self._ask(self._kept.set.remote(epoch))

    def get(self) -> int:
        """Return the epoch."""
        return int(self._ask(self._kept.get.remote()))

    def _ask(self, answer: Any) -> Any:
        import ray

        try:
            return ray.get(answer)
        except ray.exceptions.RayActorError as error:
            raise WorkerError(
                f"The process that keeps the epoch has ended ({first_line(error)}).",
                "Make a new SharedEpoch, and resume from the last checkpoint.",
            ) from None


class _Number:
    """A number in a process of its own."""

    def __init__(self) -> None:
        self.number = 0

    def set(self, number: int) -> None:
        self.number = number

    def get(self) -> int:
        return self.number
