"""A model whose first turn is ours: a failure, as tokens that the model could have sampled."""

from __future__ import annotations

from cleaner_rl.evaluate.recovery.failures import Failure
from cleaner_rl.evaluate.recovery.writing import written
from cleaner_rl.purify import Draft, SampleRequest
from cleaner_rl.rollout import Model, PrefilledModel
from cleaner_rl.tasks import Prompt
from cleaner_rl.trajectory import S


def with_failure(model: Model[S], failure: Failure, prompt: Prompt) -> PrefilledModel[S]:
    """The model, with a failure in place of what it would have sampled first."""

    def given(request: SampleRequest[S]) -> Draft[S] | None:
        if request.context.turns:
            return None
        return model.written(written(failure, prompt.call_format, prompt.tool, request.context.prompt.text))

    return PrefilledModel(model, given)
