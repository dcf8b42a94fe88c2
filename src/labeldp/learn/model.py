"""A trained model: probabilities for new rows, kept as safetensors and a small JSON that says how to rebuild it."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features, choose_device
from labeldp.learn.backbones import Average, Beside, Network, rebuild, takes_mirrors
from labeldp.learn.predictor import best_labels, not_a_model, read_facts, write_facts
from labeldp.learn.weights import pack, unpack
from labeldp.releases.base import Release

_REMEMBERED = "_labeldp_provenance"  # the attribute of a network and of its layers


@dataclass(frozen=True)
class Model(HasProvenance):
    """A network for a label space, with the provenance of what it learnt.

    An encoder that was trained without labels has no space and a public provenance. A network remembers the provenance
    of the model that it belongs to, and so do its copies and its layers: a model of such a network rests on the same
    labels, whether its maker names them or not.
    """

    network: nn.Module
    space: LabelSpace | None
    provenance: Provenance = field(default_factory=Provenance.public)

    def __post_init__(self) -> None:
        remembered = (vars(module).get(_REMEMBERED) for module in self.network.modules())
        found = Provenance.of(self.provenance, *remembered)
        object.__setattr__(self, "provenance", found)
        if found.uses_labels:
            for module in self.network.modules():
                setattr(module, _REMEMBERED, found)

    @classmethod
    def trained_on(cls, network: nn.Module, release: Release, *starts: "Model | None") -> "Model":
        """Return a model of what was learnt from a release, and from whatever `starts` had learnt before."""
        return cls(network, release.space, Provenance.of(release, *starts))

    def predict_proba(self, features: Features, batch: int = 2048) -> NDArray[np.float32]:
        """Return the probability of each class for each row.

        Where a network was told that mirror images have the same label, it is the mean over a picture and its mirror.
        """
        self._classes()
        mirrored = takes_mirrors(self.network)

        def chances(inputs: Tensor) -> Tensor:
            looks = (inputs, inputs.flip(3)) if mirrored else (inputs,)
            return torch.stack([torch.softmax(self.network(look).float(), dim=1) for look in looks]).mean(dim=0)

        return self._apply(features, chances, batch)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row; of numbers, the mean or the median, as the network's loss has it."""
        return best_labels(self._classes(), self.predict_proba(features), getattr(self.network, "loss", "squared"))

    def embed(self, features: Features, batch: int = 2048) -> NDArray[np.float32]:
        """Return each row's encoding."""
        if not isinstance(self.network, Network | Beside):
            raise InputError("Only networks of this library have encodings: use your own for yours.")
        return self._apply(features, self.network.embed, batch)

    def digest(self) -> str:
        """Tell this model from others, wherever it is."""
        found = hashlib.sha256()
        for name, value in self.network.state_dict().items():
            found.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def _classes(self) -> LabelSpace:
        if self.space is None:
            raise InputError("This is an encoder, which knows no classes: give it to a learner as its start.")
        return self.space

    def check_shape(self, features: Features) -> None:
        """Refuse rows of another shape: some networks would take pictures of another size, and make nothing of them."""
        parts = self.network.networks if isinstance(self.network, Beside | Average) else [self.network]
        for part in parts:
            known, given = (part.recipe["shape"] if isinstance(part, Network) else None), list(features.shape)
            if known is not None and len(given) != 2 and known != given:
                wanted, other = (" x ".join(map(str, shape)) for shape in (known, given))
                raise InputError(f"This model takes rows of {wanted}, and these are {other}: bring them to that shape.")

    @torch.no_grad()
    def _apply(self, features: Features, function: Any, batch: int) -> NDArray[np.float32]:
        self.check_shape(features)
        self.network.eval()
        device = next(self.network.parameters()).device
        starts = torch.split(torch.arange(len(features), device=features.device), batch)
        parts = [function(features.batch(rows).to(device)).float().cpu() for rows in starts]
        return torch.cat(parts).numpy()

    def save(self, folder: str | Path, *, small: bool = False) -> None:
        """Write the model into a new folder, whole or not at all; `small`, with about 8 bits a weight."""
        from safetensors.torch import save

        recipe = _recipe(self.network)
        if recipe is None:
            raise InputError("Only networks of this library can be rebuilt from a file: save the weights of yours.")
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "network", "network": recipe})
            weights = {name: value.contiguous() for name, value in self.network.state_dict().items()}
            (partial / "weights.safetensors").write_bytes(save(pack(weights) if small else weights))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "Model":
        """Read a model that `save` wrote, on any machine."""
        facts = read_facts(folder)
        return cls(load_network(folder, device), facts["space"], facts["provenance"])


def load_network(folder: str | Path, device: str = "auto") -> nn.Module:
    """Read the network alone of a model that `save` wrote; the caller must state its provenance."""
    from safetensors.torch import load_file

    where = choose_device(device)
    facts = read_facts(folder)
    if facts.get("kind", "network") != "network":
        raise InputError(f"{folder} holds no network: an encoder is made by `labeldp encode`, without labels.")
    try:
        network = rebuild(facts["network"])
        network.load_state_dict(unpack(load_file(Path(folder) / "weights.safetensors")))
    except Exception:
        raise not_a_model(folder) from None
    return network.to(where).eval()


def _recipe(network: nn.Module) -> dict[str, Any] | None:
    try:
        return network.recipe  # type: ignore[return-value]
    except AttributeError:
        return None
