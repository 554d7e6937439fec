"""Fuzz one target, guided by coverage: `python -m tests.fuzz.run chain CORPUS -max_total_time=60`.

`make fuzz` does all. Needs atheris. What follows the name of the target is libFuzzer's.
"""

import sys

import atheris

with atheris.instrument_imports(include=["audioaug", "yaml"]):
    from tests.fuzz.targets import forbid_code, run, seeds


def main() -> None:
    """Start the fuzzer, which never returns."""
    name = sys.argv.pop(1)
    for seed in seeds(name):  # what is imported on first use is there then
        run(name, seed)
    is_guarded = False

    def one_input(data: bytes) -> None:
        nonlocal is_guarded
        if not is_guarded:  # the fuzzer itself imports until now
            forbid_code()
            is_guarded = True
        run(name, data)

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
