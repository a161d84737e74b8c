"""planted.md: every planted fault, and the rules that must reject it.

    python conformance/tests/planted_list.py     writes it anew

That each of these rules does reject it is what the tests beside it show; see `CAUGHT` in
level1/test_planted_faults.py and level2/test_wrong_schedulers.py.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "planted.md"

_TOP = """# Planted faults, and the rules that reject them
Every line is an implementation with one thing wrong, kept with the suite's own tests. Each of the
rules named beside it must reject it, by its id; the tests fail if one of them does not, and if a
rule of these levels rejects nothing here.

Written by `python conformance/tests/planted_list.py`; a test compares it with the faults.
"""


def page() -> str:
    """The page as it should be. Imports vLLM, which wrong schedulers need."""
    for level in ("level1", "level2"):
        if (folder := str(HERE / level)) not in sys.path:
            sys.path.append(folder)
    import planted_all
    import wrong_all

    parts = [_TOP]
    for title, faults in (
        ("Level 1: wrong limiters and declarations", planted_all.FAULTS),
        ("Level 2: wrong schedulers", wrong_all.FAULTS),
    ):
        parts += [f"## {title}\n", f"{len(faults)} faults.\n", "| fault | rejected by |"]
        parts.append("| --- | --- |")
        parts += [f"| {_plain(f.name)} | {', '.join(sorted(f.caught_by))} |" for f in faults]
        parts.append("")
    return "\n".join(parts)


def _plain(name: str) -> str:
    return name if " " in name else name.replace("-", " ")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))
    PAGE.write_text(page(), encoding="utf-8")
