"""Rows: where the examples of a batch are while one op after the other changes some of them.

Shapes: B examples, R rows that an op touches, C channels, T samples.
"""

from typing import Protocol

import torch

from audioaug.dsp.dispatch import implementation_for, is_compiling
from audioaug.dsp.windows import silence_past_ends
from audioaug.internals import is_transformed


class Rows(Protocol):
    """All rows of a batch, of which an op takes some, or with ``None`` all, and puts back what it has made of them."""

    def whole(self) -> torch.Tensor:
        """Return all of them as one batch, (B, C, T)."""
        ...

    def take(self, rows_R: torch.Tensor | None) -> tuple[torch.Tensor, bool]:
        """Return rows, (R, C, T), and whether they may be written over."""
        ...

    def put(self, rows_R: torch.Tensor | None, y_RCT: torch.Tensor) -> None:
        """Replace rows; if these have another number of samples, the others are cut, or padded with silence."""
        ...


def rows_of(x_BCT: torch.Tensor, kept: torch.Tensor) -> Rows:
    """Return the rows of a batch; ``kept`` must not be written over, which the batch may be itself, or a view of.

    On a CPU they stay apart: copying an op's rows back into the batch takes as long as many an op does.
    """
    return RowsApart(x_BCT, kept) if implementation_for(x_BCT) == "loop" else RowsTogether(x_BCT, kept)


class RowsTogether:
    """Rows in one tensor, which those that an op has changed are copied into."""

    def __init__(self, x_BCT: torch.Tensor, kept: torch.Tensor) -> None:
        self._y_BCT, self._kept = x_BCT, kept

    def whole(self) -> torch.Tensor:
        """Return the tensor."""
        return self._y_BCT

    def take(self, rows_R: torch.Tensor | None) -> tuple[torch.Tensor, bool]:
        """Copy some rows."""
        if rows_R is None:
            return self._y_BCT, is_overwritable(self._y_BCT, self._kept)
        y_RCT = self._y_BCT.index_select(0, rows_R)
        return y_RCT, is_overwritable(y_RCT, self._y_BCT)

    def put(self, rows_R: torch.Tensor | None, y_RCT: torch.Tensor) -> None:
        """Copy rows back, into the same memory where that is possible."""
        if rows_R is None:
            self._y_BCT = y_RCT
            return
        y_BCT = fit(self._y_BCT, y_RCT.shape[-1])
        free = is_overwritable(y_BCT, self._kept)
        self._y_BCT = (y_BCT.index_copy_ if free else y_BCT.index_copy)(0, rows_R, y_RCT)


class RowsApart:
    """Rows that stay where the last op that changed them has put them, until they are needed in one tensor.

    That takes memory for about one batch more.
    """

    def __init__(self, x_BCT: torch.Tensor, kept: torch.Tensor) -> None:
        self._y_BCT: torch.Tensor | None = x_BCT
        self._rows_CT: list[torch.Tensor] = []
        self._kept, self._width = kept, x_BCT.shape[-1]

    def whole(self) -> torch.Tensor:
        """Copy the rows into one tensor, if they are not in one."""
        if self._y_BCT is None:
            self.put(None, self._stacked(self._rows_CT))
        assert self._y_BCT is not None
        return self._y_BCT

    def take(self, rows_R: torch.Tensor | None) -> tuple[torch.Tensor, bool]:
        """Copy some rows, or all that are not in one tensor."""
        if rows_R is None:
            y_RCT = self.whole()
        else:
            rows_CT = self._apart()
            y_RCT = self._stacked([rows_CT[row] for row in rows_R.tolist()])
        return y_RCT, is_overwritable(y_RCT, self._kept)

    def put(self, rows_R: torch.Tensor | None, y_RCT: torch.Tensor) -> None:
        """Keep the rows of this tensor in place of those before."""
        if rows_R is None:
            self._y_BCT, self._rows_CT = y_RCT, []
        else:
            rows_CT, self._y_BCT = self._apart(), None
            for row, y_CT in zip(rows_R.tolist(), y_RCT):
                rows_CT[row] = y_CT
        self._width = y_RCT.shape[-1]

    def _apart(self) -> list[torch.Tensor]:
        if self._y_BCT is not None and not self._rows_CT:
            self._rows_CT = list(self._y_BCT)
        return self._rows_CT

    def _stacked(self, rows_CT: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([fit(row_CT, self._width) for row_CT in rows_CT])


def fit(x: torch.Tensor, width: int) -> torch.Tensor:
    """Cut rows, or pad them with silence, so that they have that many samples; whatever dimensions are before these."""
    missing = width - x.shape[-1]
    return x if not missing else torch.nn.functional.pad(x, (0, missing))


def silenced(y_RCT: torch.Tensor, length_R: torch.Tensor, x_RCT: torch.Tensor) -> torch.Tensor:
    """Return rows with silence past the ends of their clips; x, which they may be a view of, stays as it is."""
    return silence_past_ends(y_RCT if is_overwritable(y_RCT, x_RCT) else y_RCT.clone(), length_R)


def is_overwritable(y: torch.Tensor, x: torch.Tensor) -> bool:
    """Return whether what became of x may be written over: it is not x itself, and no gradient is found from it."""
    if y is x or y.requires_grad or is_compiling() or is_transformed():
        return False
    return y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
