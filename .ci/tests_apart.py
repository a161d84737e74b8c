"""Copy a package's tests away from its sources, so that they meet the installed package instead.

python .ci/tests_apart.py PACKAGE FOLDER     makes FOLDER/PACKAGE_tests
"""

import shutil
import sys
from pathlib import Path

package, folder = sys.argv[1:]
source = Path(__file__).resolve().parent.parent / package / "tests"
target = Path(folder) / f"{package}_tests"
shutil.rmtree(target, ignore_errors=True)
shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
