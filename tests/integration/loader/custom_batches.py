"""Batch types as users and libraries define them: at the top level of a module, so that workers can send them."""

from dataclasses import dataclass
from typing import Any

import torch


class Clips:
    """A batch with the audio in an attribute, which counts how it is moved and pinned."""

    def __init__(self, audio: torch.Tensor, label: torch.Tensor | None = None) -> None:
        self.audio, self.label = audio, label
        self.calls: list[Any] = []

    def to(self, device: torch.device, non_blocking: bool = False) -> "Clips":
        self.audio = self.audio.to(device, non_blocking=non_blocking)
        self.calls = [*self.calls, (str(device), non_blocking)]
        return self

    def pin_memory(self) -> "Clips":
        self.calls = [*self.calls, "pinned"]
        return self


@dataclass(frozen=True)
class Frozen:
    """A batch that cannot be changed, and whose ``to`` knows nothing but a device."""

    audio: torch.Tensor
    label: torch.Tensor

    def to(self, device: torch.device) -> "Frozen":
        return Frozen(self.audio.to(device), self.label.to(device))


class Slots:
    """A batch with slots, without ``pin_memory``."""

    __slots__ = ("audio",)

    def __init__(self, audio: torch.Tensor) -> None:
        self.audio = audio

    def to(self, device: torch.device, **options: Any) -> "Slots":
        return Slots(self.audio.to(device, **options))


class Forgetful(Clips):
    """A batch whose methods return nothing."""

    def to(self, device: torch.device) -> None:  # type: ignore[override]
        super().to(device)

    def pin_memory(self) -> None:  # type: ignore[override]
        super().pin_memory()


class Elsewhere(Clips):
    """A batch whose ``to`` takes no device."""

    def to(self) -> "Elsewhere":  # type: ignore[override]
        return self


class NoMethods:
    """A batch without methods."""

    def __init__(self, audio: torch.Tensor, label: torch.Tensor) -> None:
        self.audio, self.label = audio, label


class ReadOnly(Clips):
    """A batch whose audio is a property."""

    def __init__(self, audio: torch.Tensor, label: torch.Tensor | None = None) -> None:
        self._audio, self.label = audio, label

    @property
    def audio(self) -> torch.Tensor:  # type: ignore[override]
        return self._audio

    def to(self, device: torch.device, non_blocking: bool = False) -> "ReadOnly":
        return ReadOnly(self._audio.to(device), self.label)


def collate(kind: Any, examples: list[tuple[torch.Tensor, int]]) -> Any:
    """Return a batch of this type."""
    return kind(torch.stack([wave for wave, _ in examples]), torch.tensor([label for _, label in examples]))


def collate_nested(examples: list[tuple[torch.Tensor, int]]) -> Any:
    """Return a tuple with a custom type in it."""
    batch = collate(Clips, examples)
    return batch.audio, [batch, "text"]
