"""Equal culprits: one fault that many nodes have is one group, and nothing that differs is in it."""

from __future__ import annotations

from dataclasses import replace

import sample_results
from hypothesis import given
from hypothesis import strategies as st

from bisect_align.judgement.grouping import grouped
from bisect_align.result.result import Culprit, Kind, Symptom

ONE = sample_results.fault().culprits[0]


def culprit(output: str, op: str = "Softmax", axis: str = "-1", kind: Kind = Kind.WRONG_RESULT) -> Culprit:
    node = replace(ONE.region.nodes[0], op=op, attributes={"axis": axis}, name=f"n_{output}", outputs=(output,))
    looks = (Symptom("scale", f"as {output} shows it", 0.9),)
    return replace(ONE, kind=kind, region=replace(ONE.region, output=output, nodes=(node,)), symptoms=looks)


def test_the_first_names_all_and_the_others_name_the_first() -> None:
    found = grouped([culprit("a"), culprit("b", axis="1"), culprit("c"), culprit("d")])
    assert [c.same_as for c in found] == [("c", "d"), (), ("a",), ("a",)]
    assert [c.region.output for c in found] == ["a", "b", "c", "d"]


def test_what_differs_is_another_group() -> None:
    others = [
        culprit("b", op="LogSoftmax"),
        culprit("c", axis="1"),
        culprit("d", kind=Kind.PRECISION_LOSS),
    ]
    assert all(c.same_as == () for c in grouped([culprit("a"), *others]))


def test_wider_regions_are_equal_only_as_a_whole() -> None:
    one, other = culprit("a"), culprit("b")
    wide = replace(other, region=replace(other.region, nodes=other.region.nodes * 2))
    assert [c.same_as for c in grouped([one, wide])] == [(), ()]


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.sampled_from("01"), st.sampled_from([Kind.WRONG_RESULT, Kind.NON_FINITE])),
        max_size=12,
    )
)
def test_every_culprit_is_in_one_group(kinds: list[tuple[str, str, Kind]]) -> None:
    given_ = [culprit(f"t{k}", *kind) for k, kind in enumerate(kinds)]
    found = grouped(given_)
    assert [replace(c, same_as=()) for c in found] == given_
    leaders = [c for k, c in enumerate(found) if not set(c.same_as) & {f"t{j}" for j in range(k)}]
    assert len(leaders) == len(set(kinds))
    assert sorted(name for c in leaders for name in (c.region.output, *c.same_as)) == sorted(c.region.output for c in found)
