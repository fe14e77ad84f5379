"""The blocks of a model, by the beginning of the paths of its values; repeated layers count as one block."""

from collections.abc import Collection
from dataclasses import dataclass, field

ELSEWHERE = "masks"
"""The block of values outside all stages: the masks of the inputs."""


@dataclass
class Blocks:
    """Sorts paths into blocks, down to `depth` names; numbers of layers are not counted."""

    stages: Collection[str]
    depth: int
    _numbers: dict[str, list[set[int]]] = field(default_factory=dict[str, list[set[int]]])

    def of(self, path: str) -> str:
        """The key of a path's block: `encoder/#/self_attention`."""
        parts = [part.partition("~")[0] for part in path.split("/")]
        if next((part for part in parts if not part.isdecimal()), None) not in self.stages:
            return self._keep((ELSEWHERE,), [])
        kept: list[str] = []
        numbers: list[int] = []
        waiting: list[int] = []
        for part in parts:
            if part.isdecimal():
                waiting.append(int(part))
                continue
            if len(kept) - len(numbers) == self.depth:
                break
            kept += ["#"] * len(waiting) + [part]
            numbers, waiting = [*numbers, *waiting], []
        return self._keep(tuple(kept), numbers)

    def label(self, key: str) -> str:
        """The block's name with the range of its layers: `encoder/{0..5}/self_attention`."""
        numbers = iter(self._numbers[key])
        return "/".join(_range(next(numbers)) if part == "#" else part for part in key.split("/"))

    def _keep(self, parts: tuple[str, ...], numbers: list[int]) -> str:
        key = "/".join(parts)
        known = self._numbers.setdefault(key, [set[int]() for _ in numbers])
        for seen, number in zip(known, numbers, strict=True):
            seen.add(number)
        return key


def _range(numbers: set[int]) -> str:
    first, last = min(numbers), max(numbers)
    if first == last:
        return str(first)
    whole = len(numbers) == last - first + 1
    return f"{{{first}..{last}}}" if whole else f"{{{','.join(map(str, sorted(numbers)))}}}"
