"""The options of torchbridge run are those of torchrun, and of torch.distributed.launch.

    tests/reference/run_options_reference.py TORCHBRIDGE

Each option that torch's parsers have is in our table with its spellings, kind, variable, values and default, and the
table has no other option of torchrun. Where the default is another one, the table's difference names torchrun's, and
the values that are missing. Each abbreviation that is clear to torchrun is one here, unless a later torchrun has
another option that it begins.
"""

import json
import os
import subprocess
import sys
from unittest import mock

for name in [name for name in os.environ if name.startswith("PET_")]:
    del os.environ[name]

import torch  # noqa: E402
from torch.distributed import argparse_util, launch, run  # noqa: E402

def parsers():
    """torchrun's parser, and torch.distributed.launch's, which is made where it parses."""
    made = []
    with mock.patch.object(launch, "get_args_parser", lambda: made.append(run.get_args_parser()) or made[0]):
        launch.parse_args(["program"])
    return {"torchrun": run.get_args_parser(), "torch.distributed.launch": made[0]}


def theirs(parser):
    """By the name of the option: its spellings, and what the table says of it."""
    found = {}
    for action in parser._actions:
        if not action.option_strings or action.dest == "help":
            continue
        name = next(one for one in action.option_strings if one.startswith("--"))[2:]
        has_variable = isinstance(action, (argparse_util.env, argparse_util.check_env))
        found[name] = {
            "spellings": set(action.option_strings),
            "is_flag": action.nargs == 0,
            "variable": f"PET_{action.dest.upper()}" if has_variable else "",
            "values": sorted(action.choices or []),
            "default": "" if action.default in (None, []) or action.nargs == 0 else str(action.default),
        }
    return found


def is_of_this_torch(row):
    def numbers(version):
        return [int(part) for part in version.split(".")[:2]]
    return not row["since"] or numbers(torch.__version__) >= numbers(row["since"])


def ours(row):
    spellings = {"--" + row["name"], "--" + row["name"].replace("-", "_")}
    return {
        "spellings": spellings | ({"-" + row["letter"]} if row["letter"] else set()),
        "is_flag": not row["metavar"],
        "variable": row["variable"],
        "values": sorted(row["values"]),
        "default": row["default"],
    }


def differences(table, parser, origins):
    expected = theirs(parser)
    found = {row["name"]: row for row in table if row["origin"] in origins and is_of_this_torch(row)}
    for name in sorted(expected.keys() ^ found.keys()):
        yield f"--{name}: {'only torch has it' if name in expected else 'torch does not have it'}"
    for name in sorted(expected.keys() & found.keys()):
        mine, difference = ours(found[name]), found[name]["difference"]
        for key, value in expected[name].items():
            is_declared = difference and (
                key == "default" and value in difference or
                key == "values" and all(each in difference for each in set(value) - set(mine[key])))
            if mine[key] != value and not is_declared:
                yield f"--{name}: {key} is {mine[key]!r}, torch's is {value!r}"


def abbreviations(parser):
    """(words, option) for each text that begins the spellings of one option alone."""
    spelled = {one: action for action in parser._actions for one in action.option_strings if one.startswith("--")}
    for text in sorted({one[:length] for one in spelled for length in range(3, len(one) + 1)}):
        named = {id(action): action for one, action in spelled.items() if one.startswith(text)}
        named = named if text not in spelled else {id(spelled[text]): spelled[text]}
        if len(named) == 1:
            yield text, next(iter(named.values()))


def unclear_abbreviations(program, parser, later):
    for text, action in abbreviations(parser):
        if any(name.startswith(text.replace("_", "-")) for name in later):
            continue
        words = [text] if action.nargs == 0 else [text, (action.choices or ["1"])[0]]
        told = subprocess.run([program, "run", *words, "--help"], capture_output=True, text=True)
        if told.returncode != 0:
            yield f"{text}, which is {action.option_strings[0]}: {told.stderr.strip()}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    printed = subprocess.run([sys.argv[1], "run", "--help=json"], capture_output=True, text=True, check=True).stdout
    table = json.loads(printed)
    both = parsers()
    wrong = [*differences(table, both["torchrun"], {"torchrun"}),
             *differences(table, both["torch.distributed.launch"], set(both)),
             *unclear_abbreviations(sys.argv[1], both["torchrun"],
                                    ["--" + row["name"] for row in table if not is_of_this_torch(row)])]
    if wrong:
        sys.exit("FAILED: " + "\n".join(wrong))
    print(f"{len(table)} options: those of torchrun are equal")


if __name__ == "__main__":
    main()
