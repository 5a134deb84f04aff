"""pytest plays each *.case below this folder: one test a file, or one a row of the file's tables.

Cases that may share a kvway are played one after the other, and one kvway runs at a time.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from rig.play.expect import Failure  # noqa: E402
from rig.play.language import parse  # noqa: E402
from rig.play.player import Player, report  # noqa: E402
from rig.play.stage import Stages, key_of  # noqa: E402
from rig.play.values import CaseError  # noqa: E402
from rig.router import PROGRAM  # noqa: E402


class Ended(Exception):
    """A case that failed, as a reader sees it."""


class CaseFile(pytest.File):
    def collect(self):
        try:
            case = parse(self.path.read_text(), str(self.path))
            rows = [(row, variables, case.of_row(variables)) for row, variables in case.rows()]
        except CaseError as error:
            raise self.CollectError(f"{self.path}:{error.line}: {error}") from None
        for row, variables, played in rows:
            yield CaseItem.from_parent(self, name=f"{self.path.stem}[{row}]" if row else self.path.stem,
                                       case=played, variables=variables)  # fmt: skip


class CaseItem(pytest.Item):
    def __init__(self, *, case, variables, **more):
        super().__init__(**more)
        self.case, self.variables, self.key = case, variables, key_of(case)
        self.failed = False

    def runtest(self):
        config = self.session.config
        stages = config.stages = getattr(config, "stages", None) or Stages(lambda: config._tmp_path_factory.mktemp("kvway"))
        try:
            Player(stages.of(self.case), self.case, self.variables).play()
        except Failure as failure:
            self.failed = True
            raise Ended(report(self.case, failure, stages.stage)) from None
        except BaseException:
            stages.failed()
            raise
        stages.ended()
        if self.last_of_key:
            stages.close()

    def teardown(self):
        """Ends the processes of a case that failed. With --pdb, pytest has stopped before this."""
        if self.failed:
            self.session.config.stages.failed()

    def repr_failure(self, excinfo, style=None):
        return str(excinfo.value) if isinstance(excinfo.value, (Ended, CaseError)) else super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, 0, self.name


def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".case":
        return CaseFile.from_parent(parent, path=file_path)
    return None


def pytest_collection_modifyitems(items):
    """Those that may share a kvway follow each other, in the order of their files."""
    order = {}
    for item in items:
        order.setdefault(getattr(item, "key", ""), len(order))
    items.sort(key=lambda item: order[getattr(item, "key", "")])
    for item, after in zip(items, [*items[1:], None]):
        item.last_of_key = getattr(after, "key", None) != getattr(item, "key", "")


def pytest_runtest_setup(item):
    if isinstance(item, CaseItem) and not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: build first, and set KVW_BUILD to the build directory")


def pytest_sessionfinish(session):
    """A case that was interrupted leaves its kvway."""
    stages = getattr(session.config, "stages", None)
    if stages:
        stages.close()
