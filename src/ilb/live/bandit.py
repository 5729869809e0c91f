"""Decide for real: one object for each instance, labels in and out, rewards when they come.

The compiled programs are the policies of the simulation; nothing here is a second implementation of any of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from ilb.errors import DecisionError
from ilb.live.decision import Decision
from ilb.live.instance import LiveInstance, decide_together
from ilb.live.programs import BoundPolicy
from ilb.live.recall import recall_instances
from ilb.live.recommendation import Recommendations
from ilb.live.recommending import recommend
from ilb.live.saved import Memory, read_memory
from ilb.live.settling import Settling
from ilb.live.slips import UsualRewards
from ilb.logs import Schema
from ilb.logs.histories import read_histories
from ilb.logs.labels import as_label, is_missing
from ilb.models.baselines import DOUBT, Ingredients
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.online.policy import AbstractPolicy
from ilb.online.roster import build_policy
from ilb.seeds import as_seed


class LiveBandit:
    """A policy bound to the labels of a schema: it starts and restores instances, and decides for many at once.

    `usual` are the rewards of the logs: of one that is far from them is told, as `far` says. `settling` says how many
    rounds a choice takes to be settled, for recommendations.

    Immutable, and safe to share between threads, as instances are. Randomness is a function of `seed`, the label of the
    instance and the number of the decision alone, so the same events lead to the same decisions again.

    >>> import jax.random as jr
    >>> from ilb.environments import UniformLogging, draw_world, record
    >>> from ilb.offline.fit import complete_model
    >>> world = draw_world(jr.key(0), latent_dim=2, actions=3)
    >>> logs = record(jr.key(1), world, UniformLogging(3), instances=40, length=50).logs
    >>> model = complete_model(world.oracle().encoder, logs)
    >>> anna = LiveBandit.on(model).start("anna")
    >>> decision = anna.decide({"x1": 0.3, "x2": -1.2})
    >>> decision.action in model.schema.actions
    True
    >>> anna.learn(decision, reward=1.7)
    """

    def __init__(
        self,
        policy: AbstractPolicy,
        schema: Schema,
        *,
        seed: int = 0,
        usual: UsualRewards | None = None,
        settling: Settling | None = None,
        far: str = "warn",
    ) -> None:
        self.policy = policy
        self.schema = schema
        self.seed = as_seed(seed, least=-(2**63), beyond=2**63)  # hashed, so that none is like another
        self._bound = BoundPolicy(policy, schema, self.seed, usual, far)
        self._settling = settling

    def __repr__(self) -> str:
        contexts = [column.name for column in self.schema.context]
        return f"LiveBandit(actions {list(self.schema.actions)}, contexts {contexts}, seed {self.seed})"

    @classmethod
    def on(
        cls,
        model: LatentModel | RecurrentRegression,
        policy: str | None = None,
        *,
        seed: int = 0,
        horizon: int | None = None,
        doubt: float = DOUBT,
        far: str = "warn",
    ) -> LiveBandit:
        """Bind a fitted model and the policy of this name (see `ilb.online.roster.ROSTER`).

        The default is what a model is best for: the adaptive policy, or what a recurrent regression predicts. `horizon`
        is the number of decisions that each instance will have, where that is known: with ten, little is tried out,
        and near the end nothing is. `doubt` is the probability, before anything is seen of a person, that the model is
        not right for them: the larger, the more is tried out, and the sooner the model is given up. `far` says what is
        done about values and rewards more than ten standard deviations from the logs: "warn", or "refuse".
        """
        if not isinstance(model, LatentModel | RecurrentRegression):
            raise DecisionError(
                f"a live bandit needs a fitted model; got {type(model).__name__!r}. Give what `fit` returned or "
                "`LatentModel.load` read; for a policy of your own there is LiveBandit(policy, schema)."
            )
        if policy is not None and not isinstance(policy, str):
            raise DecisionError(f"a policy is named by text, such as 'Calibrated'; got {policy!r}.")
        if horizon is not None and (not isinstance(horizon, int) or horizon < 1):
            raise DecisionError(
                f"horizon is how many decisions a person will have: a whole number from 1, or None if that is not "
                f"known. Got {horizon!r}."
            )
        schema = model.schema
        if schema is None:
            raise DecisionError("the model has no schema, so contexts and actions have no names. Fit it on Logs.")
        given = Ingredients.on(
            model, actions=len(schema.actions), context_dim=schema.width, horizon=horizon, doubt=doubt
        )
        latent = model if isinstance(model, LatentModel) else None
        return cls(
            build_policy(given, policy or given.usual_policy),
            schema,
            seed=seed,
            usual=None if latent is None else UsualRewards.of(latent),
            settling=None if latent is None else Settling.of(latent),
            far=far,
        )

    @property
    def fingerprint(self) -> str:
        """Tells apart what must not be mixed: columns, labels, and all numbers of policy and model."""
        return self._bound.fingerprint

    def start(self, instance: Hashable) -> LiveInstance:
        """Begin an instance of which nothing is known yet."""
        label = as_label(instance)
        if is_missing(label):
            raise DecisionError(f"an instance needs a name to be told from others by; got {instance!r}.")
        return LiveInstance(self._bound, Memory(label, self._bound.start, 0, {}))

    def restore(self, text: str) -> LiveInstance:
        """Go on with an instance that `LiveInstance.to_json` saved, as if it had never stopped."""
        return LiveInstance(self._bound, read_memory(self._bound, text))

    def from_history(self, frame: Any) -> dict[Hashable, LiveInstance]:
        """Start an instance for each person of a table and take in its rows, as if it had lived through them.

        The table is a frame or a file with the columns of the logs; those of action, reward and time may be absent. A
        row without an action was only observed. One with an action whose reward is missing waits for it: its number is
        that of the row in the person's history, from 0.
        """
        histories = read_histories(frame, self.schema)
        return {one.label: one for one in recall_instances(self._bound, histories)}

    def recommend(
        self,
        history: Any,
        *,
        allowed: Iterable[Hashable] | Hashable | None = None,
        forbidden: Iterable[Hashable] | Hashable | None = None,
        forbidden_column: str | None = None,
        earlier: Any = None,
    ) -> Recommendations:
        """Recommend an action for each person of a table, with what that rests on.

        The table is read as by `from_history`. The last row of a person is the visit at hand if it has no action yet;
        if it has one, the recommendation is for a next visit like it. Who has no row with anything in it gets what is
        best for the population, and so does a table without rows. `forbidden_column` names a column with actions that
        must not be chosen for the person (several with semicolons between them). With the table of `earlier` people
        (such as that of the logs), the nearest of them are named with what they had.
        """
        return recommend(
            self._bound,
            self._settling,
            history,
            allowed=allowed,
            forbidden=forbidden,
            forbidden_column=forbidden_column,
            earlier=earlier,
        )

    def decide_many(
        self,
        instances: Sequence[LiveInstance],
        contexts: Any,
        *,
        allowed: Iterable[Hashable] | Hashable | None = None,
        forbidden: Iterable[Hashable] | Hashable | None = None,
    ) -> list[Decision]:
        """Decide for many instances in few compiled calls; `contexts` is a frame or a list of mappings, in order."""
        if isinstance(contexts, Mapping):
            raise DecisionError("contexts must be a frame or a list with a mapping for each instance; got one mapping.")
        rows = self.schema.encode(contexts)
        if len(rows) != len(instances):
            raise DecisionError(f"{len(instances)} instances need as many contexts; got {len(rows)}.")
        if len({id(instance) for instance in instances}) != len(instances):
            raise DecisionError("an instance is named twice; decide for its contexts one after the other.")
        return decide_together(self._bound, instances, rows, self._bound.mask(allowed, forbidden))
