"""Workloads with the statistics that Pollux's authors publish: 160 jobs in eight hours at load 1, most in the fourth
hour; most take less than one or two GPU-hours (CIFAR-10 and NCF), some less than ten (DeepSpeech2, BERT) or a hundred
(YOLOv3), few more (ImageNet).

A step takes `fixed + each * samples` on a GPU, and the exchange of gradients a time on one node and another on several,
which overlaps: (compute^g + sync^g)^(1/g). The coefficients are rounded from the published step times on T4.
"""

import random
from collections.abc import Callable

from tests.experiments.pollux.workload import Model, TrainingJob

HOURS = 8
ARRIVALS = (1.0, 1.6, 2.4, 3.0, 2.2, 1.6, 1.3, 1.0)  # by hour, relative
OVERLAP = 1.6
JOBS = {"0.5": 80, "1.0": 160, "1.5": 240, "2.0": 320}


def _times(
    fixed: float, each: float, near: float, far: float
) -> Callable[[int, int, int], tuple[float, float]]:
    def step(gpus: int, nodes: int, samples: int) -> tuple[float, float]:
        compute = fixed + each * samples
        sync = 0.0 if gpus == 1 else near if nodes == 1 else far
        whole = (compute**OVERLAP + sync**OVERLAP) ** (1 / OVERLAP)
        return whole, whole - compute

    return step


CIFAR10 = Model(
    "cifar10", (32, 1024), 128, _times(0.022, 0.00065, 0.015, 0.14), {2048: 3178, 4096: 2011}
)
NCF = Model("ncf", (32, 32768), 256, _times(0.007, 4.4e-7, 0.005, 0.02), {32768: 1548}, most=1)
DEEPSPEECH2 = Model(
    "deepspeech2", (10, 80), 20, _times(0.25, 0.022, 0.1, 0.8), {320: 2264, 640: 1423}
)
BERT = Model("bert", (4, 12), 12, _times(0.22, 0.058, 0.2, 1.5), {384: 480})
YOLOV3 = Model("yolov3", (4, 8), 8, _times(0.17, 0.025, 0.22, 1.1), {64: 14577})
IMAGENET = Model(
    "imagenet", (20, 200), 200, _times(0.06, 0.0045, 0.02, 0.45), {3200: 42123, 6400: 23972}
)
KINDS = (  # as frequent as in the published workloads
    (0.39, CIFAR10),
    (0.39, NCF),
    (0.087, DEEPSPEECH2),
    (0.067, BERT),
    (0.046, YOLOV3),
    (0.02, IMAGENET),
)


def workload(load: str, seed: int) -> list[TrainingJob]:
    """In the order of arrival. The kinds are as frequent as published, in any order."""
    dice = random.Random(seed)
    count = JOBS[load]
    models = [model for share, model in KINDS for _ in range(round(share * count))]
    models += [CIFAR10] * (count - len(models))
    dice.shuffle(models)
    hours = dice.choices(range(HOURS), ARRIVALS, k=len(models))
    times = sorted(3600 * hour + dice.randrange(3600) for hour in hours)
    return [
        TrainingJob(f"{model.name}-{index}", float(at), (model,), dice.choice(sorted(model.steps)))
        for index, (at, model) in enumerate(zip(times, models, strict=True))
    ]
