"""What a session does when a device is lost in the middle of a run: it makes a new one, or goes on without.

The plans are dropped; the weights, which the model still has, go to the new device with the next plan. The run is
repeated from what was fed, and the caller is told by a `RuntimeWarning`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DeviceLostError, LimitError, ProviderError
from ..providers.base import Provider
from .executor import GraphExecutor, Run


def recovering(
    make: Callable[[], Run], providers: list[Provider], executors: Callable[[], Sequence[GraphExecutor]]
) -> Run:
    """The run that `make` makes; after the loss of a device, another one. A second loss is an error.

    A provider whose device can't be made again is closed and taken out of `providers`. Where a device had no room, or
    refused a shader, the plans are dropped too, with what they hold there: another time it may go well.
    """
    try:
        return (yield from make())
    except DeviceLostError as error:
        lost = error
    except (LimitError, ProviderError):
        if any(hasattr(provider, "restore") for provider in providers):
            for executor in executors():
                executor.close()
        raise
    for executor in executors():
        executor.close()
    told = []
    gone: list[Any] = [p for p in providers if getattr(p, "is_lost", False)]
    for provider in gone:
        try:
            yield provider, provider.restore()
            told.append(f"{provider.name} has a new device, on which the run was repeated")
        except Exception as failure:
            providers.remove(provider)
            provider.close()
            told.append(f"{provider.name} could not be restored ({failure}): this session goes on without it")
    if not told:
        raise lost
    warnings.warn(f"{lost} {'; '.join(told)}", RuntimeWarning, stacklevel=2)
    return (yield from make())
