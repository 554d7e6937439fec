"""How each kind of quantity is printed."""

import pytest

from audioaug import units

EXAMPLES = [
    (units.format_ms, (21.3,), "21.3 ms"),
    (units.format_ms, (2.134,), "2.13 ms"),
    (units.format_ms, (0.02134,), "0.0213 ms"),
    (units.format_ms, (0.0,), "0 ms"),
    (units.format_ms, (1234.5,), "1,234 ms"),
    (units.format_ms, (-2.134,), "-2.13 ms"),
    (units.format_ms, (2.134, 2), "2.1 ms"),
    (units.format_seconds, (0.000012,), "12 us"),
    (units.format_seconds, (0.0021,), "2.1 ms"),
    (units.format_seconds, (0.001,), "1.0 ms"),
    (units.format_seconds, (3.4,), "3.4 s"),
    (units.format_seconds, (34.0,), "34 s"),
    (units.format_seconds, (99.0,), "99 s"),
    (units.format_seconds, (125.0,), "2 min 5 s"),
    (units.format_seconds, (3599.0,), "59 min 59 s"),
    (units.format_seconds, (3600.0,), "1 h 0 min"),
    (units.format_seconds, (20277.0,), "5 h 37 min"),
    (units.format_interval, (12.1, 12.9), "12.1 .. 12.9"),
    (units.format_interval, (0.5, 1.25, 2), "0.50 .. 1.2"),
    (units.format_rate, (1234.4,), "1,234 clips/s"),
    (units.format_rate, (0.0, "steps"), "0 steps/s"),
    (units.format_rate, (0.3141,), "0.31 clips/s"),
    (units.format_rate, (9.96,), "10 clips/s"),
    (units.format_rate, (31.41,), "31 clips/s"),
    (units.format_percent, (0.0713,), "7.1 %"),
    (units.format_percent, (0.1,), "10 %"),
    (units.format_percent, (0.713,), "71 %"),
    (units.format_percent, (0.0,), "0.0 %"),
    (units.format_percent, (1.0,), "100 %"),
    (units.format_percent, (15.336,), "1,534 %"),
    (units.format_percent, (-0.05,), "-5.0 %"),
    (units.parse_bytes, ("500",), 500),
    (units.parse_bytes, ("1.5 GiB",), 1610612736),
    (units.parse_bytes, ("2 lots",), None),
    (units.format_bytes, (0,), "0 B"),
    (units.format_bytes, (1023,), "1023 B"),
    (units.format_bytes, (1024,), "1.0 KiB"),
    (units.format_bytes, (3.5 * 2**20,), "3.5 MiB"),
    (units.format_bytes, (2 * 2**30,), "2.0 GiB"),
    (units.format_bytes, (5 * 2**40,), "5.0 TiB"),
    (units.format_bytes, (5000 * 2**40,), "5000.0 TiB"),
    (units.format_hz, (16000,), "16 kHz"),
    (units.format_hz, (44100,), "44.1 kHz"),
    (units.format_hz, (150.0,), "150 Hz"),
    (units.format_hz, (1000,), "1 kHz"),
    (units.rounded, (1234.4,), "1,234"),
    (units.rounded, (0.314,), "0.31"),
    (units.plural, (1, "worker"), "1 worker"),
    (units.plural, (0, "worker"), "0 workers"),
    (units.plural, (4, "worker"), "4 workers"),
    (units.plural, (1200, "clip"), "1,200 clips"),
    (units.significant, (0.00213, 3), "0.00213"),
    (units.significant, (0.0000001234, 2), "0.00000012"),
    (units.significant, (1230.4, 3), "1,230"),
    (units.significant, (99.96, 3), "100"),
    (units.significant, (0.1, 3), "0.100"),
    (units.significant, (-0.25, 1), "-0.2"),
]


@pytest.mark.parametrize(("function", "arguments", "text"), EXAMPLES, ids=[text for _, _, text in EXAMPLES])
def test_number_formats(function, arguments, text):
    assert function(*arguments) == text


def test_every_function_has_an_example():
    of_units = {name for name, value in vars(units).items() if callable(value) and value.__module__ == units.__name__}
    functions = {name for name in of_units if not name.startswith("_")}
    assert functions == {function.__name__ for function, _, _ in EXAMPLES}
