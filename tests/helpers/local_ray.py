"""A Ray cluster of one node on this machine, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import psutil


@contextmanager
def local_ray(num_cpus: int) -> Iterator[Any]:
    """Yield Ray, connected to a cluster that ends afterwards."""
    import ray

    ray.init(
        "local",  # a new one, whatever else runs on this machine
        num_cpus=num_cpus,
        object_store_memory=10**8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        _shut_down(ray)


def _shut_down(ray: Any) -> None:
    """End the cluster; if that hangs, which was seen once, end its processes, without which it cannot."""
    ending = Thread(target=ray.shutdown, daemon=True)
    ending.start()
    ending.join(60)
    if ending.is_alive():
        for process in psutil.Process().children(recursive=True):
            if "ray" in " ".join(process.cmdline()):
                process.kill()
        ending.join(60)
