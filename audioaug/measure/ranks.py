"""Ranks: the training processes of this machine; how the advisor starts and connects them.

torchrun starts them and describes them in environment variables, of which ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE`` are
used here; ``links_of_rank_0`` can start them without it. Rank 0 has a connection to each of the others. If a process
ends, the connection does too, so no process waits for another one that has ended.
"""

import hmac
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any

import torch

from audioaug.errors import AudioaugError, MeasurementError, UsageError
from audioaug.measure.host import local_ranks
from audioaug.measure.usage import other_ranks
from audioaug.units import Seconds

JOINING: Seconds = 120.0
"""Longest time for all ranks to start and connect; importing torch takes most of it."""

PATIENCE: Seconds = 60.0
"""Longest wait for another rank after this one has finished the same work."""

GRACE: Seconds = 20.0
"""Seconds after the end of another rank in which this process can end by itself, before it is ended."""

ENDING: Seconds = 5.0
"""Seconds in which ranks that were started here can end by themselves, before they are killed."""

HOST = "127.0.0.1"
ADDRESS = "AUDIOAUG_RANK_0"
"""Environment variable: the port of rank 0 and the token that it expects."""

TOKEN_BYTES = 32
OTHER_RANK_FAILED = "Train the same model file in that many processes with torchrun to see its output."


def local_rank() -> int:
    """Return which of this machine's ranks this process is; 0 if it trains alone."""
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if local_ranks() > 1 and rank.isdecimal() else 0


def device_of_rank(name: str) -> str:
    """Return the device for ``auto`` if several ranks train: each has a GPU of its own, which becomes the current one.

    Any other device stays as it is.
    """
    if name != "auto" or local_ranks() == 1 or not torch.cuda.is_available():
        return name
    if local_rank() < torch.cuda.device_count():
        torch.cuda.set_device(local_rank())
    return f"cuda:{local_rank()}"


class Link:
    """A connection to another rank, for objects that can be pickled.

    If the other process ends, so does this one: ``check`` and ``receive`` raise, and after ``GRACE`` seconds a process
    that is blocked elsewhere (in a collective, for example) is ended.

    Args:
        connected: a stream socket.
        name: the other rank, for messages.
        process: the other rank, if this process has started it.
    """

    def __init__(self, connected: socket.socket, name: str, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self._socket, self._name, self._process = connected, name, process
        self._received: SimpleQueue[Any] = SimpleQueue()
        self._lost: AudioaugError | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._receive_all, daemon=True).start()

    def send(self, message: Any) -> None:
        """Send an object. If the connection is lost, ``receive`` raises."""
        with suppress(OSError):
            self._socket.sendall(pickle.dumps(message))

    def receive(self, seconds: Seconds | None = None) -> Any:
        """Return the next object.

        Raises:
            MeasurementError: the other process has ended, or sends nothing for this many seconds.
        """
        try:
            message = self._received.get(timeout=seconds)
        except Empty:
            late = f"{self._name} is still busy {seconds:.0f} s after this rank has finished the same work."
            self._lost = message = MeasurementError(late, OTHER_RANK_FAILED)
        if self._lost is not None and message is self._lost:
            self._received.put(message)
            raise self._lost
        return message

    def check(self) -> None:
        """Raise an error if the other process has ended: the last one that it sent, or ``MeasurementError``."""
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """End the connection; the other process notices."""
        self._closed.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a forked worker may hold the socket, too
        self._socket.close()

    def _receive_all(self) -> None:
        message = None
        with suppress(EOFError, OSError, pickle.UnpicklingError), self._socket.makefile("rb") as stream:
            while True:
                message = pickle.load(stream)
                if isinstance(message, AudioaugError):
                    message = type(message)(f"{self._name}: {message.message}", message.next_step)
                self._received.put(message)
        if not isinstance(message, AudioaugError):
            message = MeasurementError(f"{self._name} ended unexpectedly{self._how()}.", OTHER_RANK_FAILED)
        self._lost = self._lost or message
        self._received.put(self._lost)
        if not self._closed.wait(GRACE):
            print(f"error: {self._lost}", file=sys.stderr, flush=True)
            os._exit(self._lost.exit_code)

    def _how(self) -> str:
        """Return the exit code or the signal of the other process, if it is known."""
        if self._process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(ENDING)
            return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"
        return ""


@contextmanager
def links_of_rank_0(count: int | None, command: Sequence[str]) -> Iterator[list[Link]]:
    """Connect rank 0 to the other ranks: those of torchrun or, with ``count``, ranks that are started and ended here.

    Nothing is started or connected, and the list is empty, if this process trains alone.

    Args:
        count: ranks to start, this process included.
        command: a Python module and its arguments, to start them with.

    Raises:
        MeasurementError: a rank has not connected in time.
        UsageError: ranks of several machines, or ``count`` within torchrun.
    """
    with ExitStack() as stack:
        if count is not None and local_ranks() > 1:
            raise UsageError(f"--ranks {count}: torchrun has already started {local_ranks()} ranks.", "Leave it out.")
        if (count or local_ranks()) == 1:
            yield []
            return
        token, processes = secrets.token_bytes(TOKEN_BYTES), list["subprocess.Popen[bytes]"]()
        with socket.create_server((HOST, 0)) as server:
            address = f"{server.getsockname()[1]} {token.hex()}"
            if count is None:
                try:
                    _store().set(ADDRESS, address)
                except RuntimeError:
                    raise MeasurementError(
                        "The store of torchrun cannot be reached.", "Start torchrun again."
                    ) from None
            else:
                stack.enter_context(_environment(_variables(count)))
                processes = stack.enter_context(_started(count, command, address))
            links = stack.enter_context(_accepted(server, token, processes))
        yield links


@contextmanager
def link_to_rank_0() -> Iterator[Link]:
    """Connect another rank to rank 0, which receives the error if the block raises one of ours.

    Raises:
        MeasurementError: rank 0 cannot be reached.
        UsageError: ranks of several machines.
    """
    try:
        address = os.environ.get(ADDRESS) or _store().get(ADDRESS).decode()
        port, token = address.split()
        connected = socket.create_connection((HOST, int(port)), JOINING)
    except (OSError, RuntimeError):
        raise MeasurementError("Rank 0 cannot be reached.", "Start the advisor in all ranks.") from None
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.sendall(bytes.fromhex(token) + local_rank().to_bytes(4, "big") + os.getpid().to_bytes(4, "big"))
    link = Link(connected, "Rank 0")
    try:
        yield link
    except AudioaugError as error:
        link.send(error)
        raise
    finally:
        link.close()


@contextmanager
def _accepted(
    server: socket.socket, token: bytes, processes: "Sequence[subprocess.Popen[bytes]]"
) -> Iterator[list[Link]]:
    """Wait for all other ranks, and count their CPU time as that of this training until the end."""
    links, end, wanted = dict[int, Link](), time.monotonic() + JOINING, local_ranks() - 1
    server.settimeout(1.0)
    try:
        while len(links) < wanted:
            try:
                connected, _ = server.accept()
            except TimeoutError:
                _check_starting(processes, len(links) + 1, time.monotonic() > end)
                continue
            greeting = b""
            with suppress(OSError):
                connected.settimeout(ENDING)
                greeting = connected.recv(TOKEN_BYTES + 8, socket.MSG_WAITALL)
            is_ours = len(greeting) == TOKEN_BYTES + 8 and hmac.compare_digest(greeting[:TOKEN_BYTES], token)
            if not is_ours:
                connected.close()
                continue
            connected.settimeout(None)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rank, pid = (int.from_bytes(greeting[at : at + 4], "big") for at in (TOKEN_BYTES, TOKEN_BYTES + 4))
            links[rank] = Link(connected, f"Rank {rank}", processes[rank - 1] if processes else None)
            other_ranks.add(pid)
        yield [links[rank] for rank in sorted(links)]
    finally:
        other_ranks.clear()
        for link in links.values():
            link.close()


def _check_starting(processes: "Sequence[subprocess.Popen[bytes]]", joined: int, is_late: bool) -> None:
    """Raise ``MeasurementError`` if not all ranks will connect."""
    ended = next((rank for rank, process in enumerate(processes, 1) if process.poll() is not None), None)
    if ended is not None:
        raise MeasurementError(f"Rank {ended} ended while it started.", OTHER_RANK_FAILED)
    if is_late:
        raise MeasurementError(
            f"Only {joined} of {local_ranks()} ranks have started the advisor within {JOINING:.0f} s.",
            "Start it in all of them; call audioaug.recommend in every process.",
        )


def _variables(count: int) -> dict[str, str]:
    """Return the environment variables that torchrun sets in rank 0 of one machine."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), "0")
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
    return {**ranks, **sizes, "MASTER_ADDR": HOST, "MASTER_PORT": str(port), **threads}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and torch's threads by them, until the end."""
    before, threads = {name: os.environ.get(name) for name in variables}, torch.get_num_threads()
    os.environ.update(variables)
    torch.set_num_threads(int(variables.get("OMP_NUM_THREADS", threads)))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _started(count: int, command: Sequence[str], address: str) -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Start all ranks but the first, out of reach of Ctrl-C: they end with their connection, or are killed."""
    arguments, processes = [sys.executable, "-m", *command], list["subprocess.Popen[bytes]"]()
    try:
        for rank in range(1, count):
            own = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), ADDRESS: address}
            processes.append(subprocess.Popen(arguments, env=own, stdin=subprocess.DEVNULL, start_new_session=True))
        yield processes
    finally:
        end = time.monotonic() + ENDING
        for process in processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _store() -> Any:
    """Return torchrun's key-value store.

    Raises:
        UsageError: torchrun has not started this process, or it runs on several machines.
    """
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # not in every build of torch

    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    found = {name: os.environ.get(name, "") for name in names}
    if missing := [name for name, value in found.items() if not value]:
        raise UsageError(
            f"LOCAL_WORLD_SIZE is {local_ranks()}, but {', '.join(missing)} is not set.",
            "Use torchrun, or --ranks without LOCAL_WORLD_SIZE.",
        )
    if int(found["WORLD_SIZE"]) != local_ranks():
        raise UsageError(
            f"{found['WORLD_SIZE']} ranks train on several machines, but the advisor measures one of them.",
            f"Use --ranks {local_ranks()} on one machine: the plan holds for each machine of its kind.",
        )
    is_server = found["RANK"] == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = TCPStore(
        found["MASTER_ADDR"],
        int(found["MASTER_PORT"]),
        is_master=is_server,
        timeout=timedelta(seconds=JOINING),
        wait_for_workers=False,
        multi_tenant=True,
    )
    return PrefixStore(f"audioaug {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
