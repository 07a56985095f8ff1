"""The commands of a drill: a line of words in, the next position and a text out. The app and a pipe use the same ones."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.text import Text

from bisect_align.drill import navigation as step
from bisect_align.drill.desk import Desk
from bisect_align.drill.look import Sight, look, shown
from bisect_align.drill.navigation import Position, Side, Sort
from bisect_align.drill.pictures import DIM, STYLES, chosen, elements
from bisect_align.drill.planes import inside, plane, turns
from bisect_align.drill.research import again, between
from bisect_align.drill.wording import answer, around, budget, fact, lines_of, verdict, where, why
from bisect_align.errors import OutputError, UsageError
from bisect_align.judgement.judge import CONVICT
from bisect_align.report.figures import number, phrase
from bisect_align.result.result import State
from bisect_align.search.answer import Answer, Crossing

_SLICES = re.compile(r"\[?\s*(?:-?\d+|:)(?:\s*,\s*(?:-?\d+|:))*\s*\]?")
_FOUND = 20  # lines of a list


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where one stands now, what there is to read, and whether that was the last command."""

    position: Position
    text: Text
    end: bool = False


Words = tuple[str, ...]
Action = Callable[[Position, Desk, Words], Outcome]


@dataclass(frozen=True, slots=True)
class Command:
    """usage: its words; help: a line on what it does. slow: it reads or computes values."""

    usage: str
    help: str
    run: Action
    slow: bool = False


def execute(line: str, position: Position, desk: Desk) -> Outcome:
    """Do what a line says. Raises BisectAlignError; the position is then still the old one."""
    name, words = parse(line)
    command = COMMANDS[name]
    if len(words) > command.usage.count(" "):
        raise UsageError(f"too many words: {line!r}", hint=f"usage: {command.usage}; quote names that hold spaces")
    return command.run(position, desk, words)


def parse(line: str) -> tuple[str, Words]:
    """(command, its words). Raises UsageError where there is no such command; the first letters of one will do."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r}: {str(error).lower()}") from None
    if not words:
        raise UsageError("no command", hint="help lists them")
    name = words[0].lower()
    begins = [known for known in COMMANDS if known.startswith(name)]
    if name not in COMMANDS and len(begins) != 1:
        near = begins or difflib.get_close_matches(name, COMMANDS, 2)
        raise UsageError(f"no command {words[0]!r}", hint=f"did you mean {' or '.join(near)}?" if near else "help lists them")
    return name if name in COMMANDS else begins[0], tuple(words[1:])


def plain(text: Text) -> str:
    """The text without colour, no line ending in blanks."""
    return "\n".join(line.rstrip() for line in text.plain.split("\n"))


# --- steps ------------------------------------------------------------------------------------------------------------------
def _there(position: Position, desk: Desk) -> Outcome:
    return Outcome(position, around(position, desk.terrain))


def _up(position: Position, desk: Desk, words: Words) -> Outcome:
    named = _neighbour(position, desk, words, desk.terrain.above(position.tensor), "above")
    return _there(named or step.up(position, desk.terrain), desk)


def _down(position: Position, desk: Desk, words: Words) -> Outcome:
    named = _neighbour(position, desk, words, desk.terrain.below(position.tensor), "below")
    return _there(named or step.down(position, desk.terrain), desk)


def _neighbour(position: Position, desk: Desk, words: Words, choices: tuple[str, ...], which: str) -> Position | None:
    """The neighbour that is named, None where none is."""
    if not words:
        return None
    tensor = desk.tensor(words[0])
    if tensor not in choices:
        raise UsageError(f"{tensor!r} is not {which} {position.tensor!r}", hint="go goes anywhere")
    return step.go(position, desk.terrain, tensor)


def _go(position: Position, desk: Desk, words: Words) -> Outcome:
    return _there(step.go(position, desk.terrain, desk.tensor(_one(words, "go TENSOR"))), desk)


def _find(position: Position, desk: Desk, words: Words) -> Outcome:
    text = _one(words, "find TEXT")
    looking = replace(position, query=text)
    found = step.listed(looking, desk.terrain)
    if not found:
        raise UsageError(f"no name, node or operator holds {text!r}", hint="op:Conv asks for an operator, bad for a state")
    if len(found) == 1:
        return _there(step.go(position, desk.terrain, found[0]), desk)
    lines = [where(position, desk.terrain, name) for name in found[:_FOUND]]
    if len(found) > _FOUND:
        lines.append(Text(f"and {len(found) - _FOUND} more"))
    return Outcome(looking, lines_of(lines))


def _sort(position: Position, desk: Desk, words: Words) -> Outcome:
    name = words[0].lower() if words else ""
    if name not in list(Sort):
        raise UsageError(f"no order {name!r}", hint=f"one of {', '.join(Sort)}")
    sorted_ = replace(position, sort=Sort(name))
    names = step.listed(sorted_, desk.terrain)[:_FOUND]
    return Outcome(sorted_, lines_of([where(sorted_, desk.terrain, n) for n in names]))


# --- words on a place -------------------------------------------------------------------------------------------------------
def _why(position: Position, desk: Desk, words: Words) -> Outcome:
    there = step.go(position, desk.terrain, desk.tensor(words[0])) if words else position
    return Outcome(there, why(there, desk.terrain, there.tensor))


def _show(position: Position, desk: Desk, words: Words) -> Outcome:
    slices = ""
    for word in words:
        if word in list(Side):
            position = replace(position, side=Side(word))
        elif not desk.terrain.knows(word) and _SLICES.fullmatch(word):
            slices = word
        else:
            position = step.go(position, desk.terrain, desk.tensor(word))
    sight = look(position.tensor, desk.values(), desk.progress)
    if slices:
        position = _sliced(position, sight, slices)
    return Outcome(position, shown(position, desk.terrain, sight))


def _sliced(position: Position, sight: Sight, slices: str) -> Position:
    """The position at a slice such as 0,7,:,: with the worst element in it, or at one element."""
    parts = [part.strip() for part in slices.strip("[] ").split(",")]
    free = [axis for axis, part in enumerate(parts) if part == ":"]
    if sight.golden is None or sight.target is None or sight.found is None:
        return position
    if len(parts) != len(sight.shape) or len(free) > 2:
        raise UsageError(f"{slices!r} is no slice of {list(sight.shape)}", hint="an index an axis, and : for at most two of them")
    element = tuple(0 if part == ":" else int(part) for part in parts)
    element = tuple(at + size if at < 0 else at for at, size in zip(element, sight.shape, strict=True))
    if not inside(element, sight.shape):
        raise UsageError(f"{slices!r} lies outside of {list(sight.shape)}")
    if len(free) == 2:
        for turn in range(turns(sight.shape)):
            cut = plane(sight.shape, element, turn)
            if {cut.rows, cut.columns} == set(free):
                off = np.abs(chosen(sight.golden, sight.target, Side.ERROR, cut))
                row, column = np.unravel_index(int(np.nan_to_num(off, nan=np.inf).argmax()), off.shape)
                spot = {cut.rows: int(row), cut.columns: int(column)}
                return replace(position, element=tuple(spot.get(axis, at) for axis, at in enumerate(element)), turn=turn)
    return replace(position, element=element, turn=0)


def _worst(position: Position, desk: Desk, words: Words) -> Outcome:
    if words and words[0].lower() != "tensor":
        raise UsageError(f"worst what? {words[0]!r}", hint="worst (elements of this tensor) or worst tensor")
    if words:
        return _there(step.worst(position, desk.terrain), desk)
    row = desk.terrain.rows.get(position.tensor)
    if desk.run is None and row is not None and row.accumulated is not None and row.accumulated.worst is not None:
        there = replace(position, element=row.accumulated.worst)
        return Outcome(
            there, lines_of([fact("worst", phrase(row.accumulated)), fact("note", desk.missing, STYLES[State.UNKNOWN])])
        )
    sight = look(position.tensor, desk.values(), desk.progress)
    if sight.found is None:
        raise UsageError(sight.trouble)
    if not sight.found.worst:
        return Outcome(position, Text(f"every element of {position.tensor} is equal"))
    there = replace(position, element=sight.found.worst[0].index)
    return Outcome(there, lines_of([where(there, desk.terrain, there.tensor), Text(), elements(sight.found, there.element, 16)]))


def _budget(position: Position, desk: Desk, words: Words) -> Outcome:
    return Outcome(position, lines_of([verdict(desk.terrain.result), Text(), budget(desk.terrain.result)]))


def _help(position: Position, desk: Desk, words: Words) -> Outcome:
    room = max(len(c.usage) for c in COMMANDS.values())
    lines = [Text.assemble((f"{c.usage:<{room}}  ", "bold"), c.help) for c in COMMANDS.values()]
    note = "TENSOR: a name, a node's name, or a piece of one. First letters will do."
    return Outcome(position, lines_of([*lines, Text(note, DIM)]))


# --- work -------------------------------------------------------------------------------------------------------------------
def _replay(position: Position, desk: Desk, words: Words) -> Outcome:
    on = words[0].lower() if words else "target"
    if on not in ("golden", "target"):
        raise UsageError(f"replay on what? {on!r}", hint="golden or target")
    run, terrain = desk.values(), desk.terrain
    area = terrain.region(position.tensor, position.reach)
    if area is None:
        raise UsageError(f"{position.tensor!r} is computed by no node: there is nothing to replay")
    ops = ", ".join(dict.fromkeys(node.op for node in terrain.nodes(position.tensor, position.reach)))
    lines = [fact("replayed", f"{ops} by ONNX Runtime, on the {on}'s own values")]
    lines += [fact("fed with", where(position, terrain, name)) for name in area.boundary]
    done = run.replay(area, "golden" if on == "golden" else "target", desk.progress)
    lines.append(fact("target", f"against what this gives: {phrase(done.against)}"))
    if done.score is None:
        lines.append(fact("so", "on golden values a region gives the golden: this is the accumulated error"))
    elif done.score.value is None:
        lines.append(fact("so", f"it cannot be judged: {done.score.note}"))
    else:
        guilty = done.score.value > CONVICT
        said = "this region does what noise does not explain" if guilty else "noise explains what this region does"
        noise = f"score {number(done.score.value)} before peers are asked, convicted above {CONVICT:g}"
        lines.append(fact("noise", f"{run.precision.name} introduces {number(done.score.expected)} here: {noise}"))
        lines.append(fact("so", said, STYLES[State.BAD if guilty else State.GOOD]))
    return Outcome(position, lines_of(lines))


def _cut(position: Position, desk: Desk, words: Words) -> Outcome:
    if len(words) < 2:
        raise UsageError("a cut needs two tensors", hint="cut TENSOR TENSOR: the first one above the second")
    top, bottom = (desk.tensor(word) for word in words)
    searched, found = between(position, desk.terrain, top, bottom, desk.ask)
    head = fact("cut", f"{top} is taken as GOOD, {bottom} as BAD")
    return _searched(replace(searched, anchor=""), desk, found, head)


def _mark(position: Position, desk: Desk, words: Words) -> Outcome:
    values = {"good": State.GOOD, "bad": State.BAD, "none": None}
    chosen_ = words[-1].lower() if words else ""
    if chosen_ not in values:
        raise UsageError("mark it as what?", hint="mark [TENSOR] good, bad or none")
    tensor = desk.tensor(words[0]) if len(words) == 2 else position.tensor
    marked = step.mark(position, desk.terrain, tensor, values[chosen_])
    searched, found = again(marked, desk.terrain, desk.ask)
    return _searched(searched, desk, found, fact("marked", f"{tensor} {chosen_}; searched again"))


def _searched(position: Position, desk: Desk, found: Answer, head: Text) -> Outcome:
    """Stand where the search has ended."""
    there = step.go(position, desk.terrain, found.tensor) if isinstance(found, Crossing) else position
    return Outcome(there, lines_of([head, answer(there, desk.terrain, found)]))


def _extract(position: Position, desk: Desk, words: Words) -> Outcome:
    if desk.extract is None:
        raise UsageError(f"no case can be written: {desk.missing or 'this result has none to cut from'}")
    try:
        said = desk.extract(position.tensor, position.reach, Path(words[0]) if words else None)
    except OutputError as error:  # its hint names an option of the command line
        raise OutputError(error.what, where=error.where, hint="name another folder: extract DIR") from error
    return Outcome(position, Text(said))


def _one(words: Words, usage: str) -> str:
    if not words:
        raise UsageError("a word is missing", hint=f"usage: {usage}")
    return " ".join(words)


def _moving(move: Callable[[Position, Desk], Position]) -> Action:
    return lambda position, desk, words: _there(move(position, desk), desk)


COMMANDS: dict[str, Command] = {
    "why": Command("why [TENSOR]", "why it is blamed, or why not", _why),
    "up": Command("up [TENSOR]", "to what it is computed from, BAD first", _up),
    "down": Command("down [TENSOR]", "to what is computed from it, BAD first", _down),
    "next": Command("next", "to the next culprit or suspect", _moving(lambda p, d: step.following(p, d.terrain))),
    "first": Command("first", "to the first BAD tensor", _moving(lambda p, d: step.first_bad(p, d.terrain))),
    "go": Command("go TENSOR", "to any tensor", _go),
    "back": Command("back", "to where you were before", _moving(lambda p, d: step.back(p))),
    "find": Command("find TEXT [TEXT]", "by name, op:TYPE, good, bad, unknown", _find),
    "sort": Command("sort ORDER", "by topology, error, score or name", _sort),
    "show": Command("show [TENSOR] [SLICE] [SIDE]", "its values: show 0,7,:,: target", _show, slow=True),
    "worst": Command("worst [tensor]", "worst elements here, or the worst tensor", _worst, slow=True),
    "replay": Command("replay [golden|target]", "run this region again on those values", _replay, slow=True),
    "widen": Command("widen", "begin the region a generation higher", _moving(lambda p, d: step.widen(p, d.terrain))),
    "narrow": Command("narrow", "and back", _moving(lambda p, d: step.narrow(p))),
    "cut": Command("cut TENSOR TENSOR", "search again between two tensors", _cut, slow=True),
    "mark": Command("mark [TENSOR] good|bad|none", "set a state by hand, search again", _mark, slow=True),
    "extract": Command("extract [DIR]", "write it as a case that runs alone", _extract, slow=True),
    "budget": Command("budget", "the verdict and what it has cost", _budget),
    "help": Command("help", "this list", _help),
    "quit": Command("quit", "leave; where you stand is kept", lambda p, d, w: Outcome(p, Text(), end=True)),
}
