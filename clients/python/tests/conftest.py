from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig import Rig, rig


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    made = rig()
    yield made
    made.node.close()
    made.direct.close()
