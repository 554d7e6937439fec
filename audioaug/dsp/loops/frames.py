"""Frames under a window: read from rows, and added up again.

Shapes: R rows, T samples, N frames of W samples.
"""

from audioaug.dsp.loops.compiling import Floats, Integers, loop


@loop
def read_frames(
    x_RT: Floats, centre_BN: Integers, window_W: Floats, channels: int, y_RT: Floats, first: int, last: int
) -> None:
    """Read the frames around these samples of each row, one after the other; around the row is silence.

    An example has so many channels, a row each.
    """
    samples, frame = x_RT.shape[1], len(window_W)
    for row in range(first, last):
        centre_N = centre_BN[row // channels]
        for n in range(len(centre_N)):
            y_W, start = y_RT[row, n * frame : (n + 1) * frame], centre_N[n] - frame // 2
            begin = min(max(-start, 0), frame)
            end = max(min(samples - start, frame), begin)
            x_W = x_RT[row, start + begin : start + end]
            y_W[:begin] = 0.0
            for w in range(begin, end):
                y_W[w] = x_W[w - begin] * window_W[w]
            y_W[end:] = 0.0


@loop
def overlap(frames_RS: Floats, window_W: Floats, channels: int, y_RT: Floats, first: int, last: int) -> None:
    """Add up a row's frames, each centred on a multiple of a quarter frame."""
    samples, frame = y_RT.shape[1], len(window_W)
    for row in range(first, last):
        y_T = y_RT[row]
        y_T[:] = 0.0
        for n in range(frames_RS.shape[1] // frame):
            frame_W, start = frames_RS[row, n * frame : (n + 1) * frame], n * (frame // 4) - frame // 2
            begin, end = max(-start, 0), min(samples - start, frame)
            if begin < end:
                into_W = y_T[start + begin : start + end]
                for w in range(begin, end):
                    into_W[w - begin] += frame_W[w] * window_W[w]
