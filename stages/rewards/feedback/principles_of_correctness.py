"""A constitution about right answers, whose labels can be checked where the truth is known."""

from stages.rewards.feedback.principle import Principle

CORRECT = (
    Principle(
        name="result",
        compare="Choose the answer whose final result is right.",
        critique="Say whether the final result is right. If it is not, name the first step that "
        "leads away from the right one.",
        revision="Write the answer again so that its final result is right.",
    ),
    Principle(
        name="arithmetic",
        compare="Choose the answer whose calculations are all correct. A fluent answer with a "
        "miscalculation is worse than a plain one without.",
        critique="Recalculate every step. Name the first step whose result is not what the "
        "calculation gives, or say that there is none.",
        revision="Write the answer again with every calculation done correctly.",
    ),
    Principle(
        name="reading",
        compare="Choose the answer that does what the question says: the right quantities, the "
        "right operations, in the right order.",
        critique="Go through the question sentence by sentence. Name the first step of the answer "
        "that does something other than the question says, or say that there is none.",
        revision="Write the answer again so that each step does what the question says.",
    ),
    Principle(
        name="working",
        compare="Choose the answer whose result follows from working that is shown and right; a "
        "bare or guessed result is worse.",
        critique="Say whether the answer shows how its result comes about, and name any step that "
        "is left out or does not follow.",
        revision="Write the answer again with every step shown and each following from the one "
        "before.",
    ),
)
"""For questions with a right answer."""
