"""Spectra, multiplied by responses that rows share.

Shapes: R rows, N responses, C channels, K blocks, F frequencies.
"""

from audioaug.dsp.loops.compiling import Complex, Integers, loop


@loop
def multiply(response_NCF: Complex, which_R: Integers, spectrum_RCKF: Complex, first: int, last: int) -> None:
    """Multiply each row's spectra by one of the responses, of each channel or (N, 1, F) of all, in place."""
    _, channels, blocks, frequencies = spectrum_RCKF.shape
    for row in range(first, last):
        for channel in range(channels):
            response_F = response_NCF[which_R[row], min(channel, response_NCF.shape[1] - 1)]
            for block in range(blocks):
                spectrum_F = spectrum_RCKF[row, channel, block]
                for f in range(frequencies):
                    spectrum_F[f] *= response_F[f]
