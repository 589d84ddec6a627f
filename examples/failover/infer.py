"""Let a model decide that takes long to load.

    cd examples/failover
    dlrover-job failover test --extension infer::InferStrategy broken_gpu.json

The constructor returns at once, so that the job starts without waiting for the model, and the
extension has a process of its own, so that loading costs the training nothing. The first failure
waits for the model if it has to. The model here is a table of words and weights; yours may be a
network, and the process may import torch for it.
"""

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.contracts import (
    AgentFailureInfo,
    DynamicAgentFailoverExtension,
    FailoverStrategy,
)

MODEL = Path(__file__).with_name("model.json")


@dataclass(frozen=True)
class Model:
    """For each strategy the words that speak for it, and how much each of them counts."""

    weights: dict[FailoverStrategy, dict[str, float]]
    threshold: float

    @classmethod
    def load(cls) -> "Model":
        time.sleep(float(os.environ.get("MODEL_LOAD_SECONDS", "0")))  # as if it were gigabytes
        document = json.loads(MODEL.read_text())
        weights = {FailoverStrategy[name]: words for name, words in document["weights"].items()}
        return cls(weights, document["threshold"])

    def infer(self, text: str) -> FailoverStrategy | None:
        """The strategy that most speaks for; None if that is not much."""
        words = set(text.lower().replace(":", " ").split())
        scores = {
            strategy: sum(weight for word, weight in weights.items() if word in words)
            for strategy, weights in self.weights.items()
        }
        best = max(scores, key=scores.__getitem__)
        return best if scores[best] >= self.threshold else None


class InferStrategy(DynamicAgentFailoverExtension):
    def __init__(self) -> None:
        self._model: Future[Model] = ThreadPoolExecutor(1, "load-model").submit(Model.load)
        # Less than --failover_timeout, which would end the process and the loading with it.
        self._patience = float(os.environ.get("MODEL_PATIENCE_SECONDS", "20"))

    def get_user_failover_strategy(self, failure_info: AgentFailureInfo) -> FailoverStrategy | None:
        try:
            model = self._model.result(timeout=self._patience)
        except TimeoutError:
            print("the model is still loading; no opinion on this one")
            return None
        return model.infer(failure_info.log_content)
