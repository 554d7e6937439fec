"""What the ops share that mix in recordings, or convolve with them."""

import functools
import os
from dataclasses import replace
from typing import Any, ClassVar

from audioaug.audio.files import Recordings, as_written, list_recordings
from audioaug.core import Op


class WithRecordings(Op, registry=None):
    """An op with recordings; ``paths`` is the name of the argument that says where they are."""

    paths: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, self.paths, as_written(getattr(self, self.paths), f"{self.name}: "))

    @functools.cached_property
    def recordings(self) -> Recordings:
        """The files, listed when the first chain with this op is made."""
        return list_recordings(getattr(self, self.paths))

    def reference(self) -> Any:
        """Build audiomentations' own, with absolute paths: the working directory may have changed since."""
        roots, written = self.recordings.roots, getattr(self, self.paths)
        absolute: Any = {self.paths: roots[0] if isinstance(written, str) else list(roots)}
        return Op.reference(replace(self, **absolute))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "recordings" in state and not all(map(os.path.exists, self.recordings.roots)):
            del self.__dict__["recordings"]  # pickled on another machine: to be listed on this one
