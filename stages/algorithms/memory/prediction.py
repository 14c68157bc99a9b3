"""How much memory a stage will take: what it always holds, and the largest of its phases."""

from dataclasses import dataclass

from stages.algorithms.memory import activations, generation
from stages.algorithms.memory.activations import MicroBatch, Precision
from stages.algorithms.memory.generation import Decoding
from stages.algorithms.memory.resident import Resident, numbers, states
from stages.algorithms.memory.shape import Shape

GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stage that trains."""

    shape: Shape
    """Of every model: reward and value models come from the policy."""
    residents: list[Resident]
    batch: MicroBatch
    """The largest micro-batch."""
    how: Precision
    decoding: Decoding | None
    """None: nothing is sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Bytes."""

    models: dict[str, dict[str, int]]
    """Role -> `parameters`, `trained`, `weights`, `gradients`, `moments`."""
    held: int
    """Weights and moments of all models: there from the first update to the end."""
    phases: dict[str, int]
    """What each phase takes besides, the gradients that are there at that time included."""

    def peak(self) -> int:
        """`held` and the largest phase."""
        return self.held + max(self.phases.values())


def predict(job: Job) -> Prediction:
    """The memory of a stage once its optimizer has made a step.

    The phases are one after the other. An update is told of a second or later micro-batch of an
    optimizer step, when gradients are whole while activations are kept too: it is the most that
    can be. PPO's value model learns before its policy, so that its gradients are there as well.
    """
    shape, rank = job.shape, job.how.rank
    models = {
        model.role: dict(zip(("parameters", "trained"), numbers(shape, model, rank), strict=True))
        | states(shape, model, rank)
        for model in job.residents
    }
    held = sum(model["weights"] + model["moments"] for model in models.values())
    phases: dict[str, int] = {}
    gradients = 0
    for model in reversed(job.residents):
        logits = model.head == "language_model"
        if model.trained:
            gradients += models[model.role]["gradients"]
            taken = activations.training(shape, job.batch, job.how, logits=logits)
            phases[f"update of {model.role}"] = gradients + taken
        else:
            taken = activations.reading(shape, job.batch, job.how.width, logits=logits)
            phases[f"reading by {model.role}"] = taken
    if job.decoding is not None:
        cache = generation.cache(shape, job.decoding, job.how.width)
        phases["sampling"] = cache + generation.working(shape, job.decoding, job.how.width)
    return Prediction(models=models, held=held, phases=phases)


def fits(peak: int, gpu_gib: float, *, share: float = 0.9) -> bool:
    """Whether `share` of a GPU's memory holds the peak.

    The rest is for the driver's context, cuBLAS' workspace and what the caching allocator cannot
    use for lack of a gap that is large enough; 0.9 is a guess that nothing here has measured.
    """
    return peak <= share * gpu_gib * GIB
