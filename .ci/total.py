"""Add up pytest's JUnit reports of all environments: `python3 .ci/total.py FOLDER`.

Exit status 1 if a test failed or if there is none: a green run that tested nothing is red.
"""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
for path in sorted(Path(sys.argv[1]).glob("*.xml")):
    for suite in ET.parse(path).getroot().iter("testsuite"):
        for key in total:
            total[key] += int(suite.get(key, 0))

failed = total["failures"] + total["errors"]
passed = total["tests"] - failed - total["skipped"]
print(f"{passed} passed, {failed} failed, {total['skipped']} skipped")
sys.exit(failed > 0 or passed == 0)
