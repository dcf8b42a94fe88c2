"""A trained network for a label space, and its files: weights as safetensors, and the architecture as JSON."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features, choose_device
from labeldp.learn.backbones import ConcatEncoder, EnsembleNetwork, Network, is_flip_invariant, rebuild
from labeldp.learn.predictor import decode_probabilities, not_a_model_error, read_metadata, write_metadata
from labeldp.learn.quantized_weights import pack, unpack
from labeldp.releases.base import Release

_PROVENANCE_ATTRIBUTE = "_labeldp_provenance"  # the attribute of a network and of its layers


@dataclass(frozen=True)
class Model(HasProvenance):
    """A network for a label space, with the provenance of its training.

    An encoder that was trained without labels has no space and a public provenance. The provenance is also an attribute
    of the network and of its layers, and of copies of them. So a new `Model` of such a network has this provenance,
    even if the constructor does not get it.

    Attributes:
        network: The network.
        space: The classes; None for an encoder.
        provenance: The uses of labels that the weights depend on.
    """

    network: nn.Module
    space: LabelSpace | None
    provenance: Provenance = field(default_factory=Provenance.public)

    def __post_init__(self) -> None:
        network_provenances = (vars(module).get(_PROVENANCE_ATTRIBUTE) for module in self.network.modules())
        combined = Provenance.of(self.provenance, *network_provenances)
        object.__setattr__(self, "provenance", combined)
        if combined.uses_labels:
            for module in self.network.modules():
                setattr(module, _PROVENANCE_ATTRIBUTE, combined)

    @classmethod
    def trained_on(cls, network: nn.Module, release: Release, *starts: "Model | None") -> "Model":
        """Return a model with the provenance of a release and of the starts of its training."""
        return cls(network, release.space, Provenance.of(release, *starts))

    def predict_proba(self, features: Features, batch_size: int = 2048) -> NDArray[np.float32]:
        """Return the probability of each class for each row.

        If mirror images have the same label, it is the mean over an image and its mirror image.
        """
        self._require_space()
        is_flip_invariant_network = is_flip_invariant(self.network)

        def probabilities(inputs: Tensor) -> Tensor:
            views = (inputs, inputs.flip(3)) if is_flip_invariant_network else (inputs,)
            return torch.stack([torch.softmax(self.network(view).float(), dim=1) for view in views]).mean(dim=0)

        return self._apply(features, probabilities, batch_size)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row; for numbers, the mean, or the median for absolute loss."""
        return decode_probabilities(
            self._require_space(), self.predict_proba(features), getattr(self.network, "loss", "squared")
        )

    def embed(self, features: Features, batch_size: int = 2048) -> NDArray[np.float32]:
        """Return the embedding of each row."""
        if not isinstance(self.network, Network | ConcatEncoder):
            raise InputError(
                "Only networks of this library have embeddings: compute those of your own network directly."
            )
        return self._apply(features, self.network.embed, batch_size)

    def digest(self) -> str:
        """Return a digest of the weights, which is the same on every device."""
        digest = hashlib.sha256()
        for name, value in self.network.state_dict().items():
            digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _require_space(self) -> LabelSpace:
        if self.space is None:
            raise InputError("This is an encoder without classes: give it to a learner as its start.")
        return self.space

    def check_shape(self, features: Features) -> None:
        """Raise an error for rows of another shape, which some networks would accept with meaningless results."""
        parts = self.network.networks if isinstance(self.network, ConcatEncoder | EnsembleNetwork) else [self.network]
        for part in parts:
            expected, actual = (part.config["shape"] if isinstance(part, Network) else None), list(features.shape)
            if expected is not None and len(actual) != 2 and expected != actual:
                expected_text, actual_text = (" x ".join(map(str, shape)) for shape in (expected, actual))
                raise InputError(
                    f"This model takes rows of {expected_text}, and these are {actual_text}: bring them to that shape."
                )

    @torch.no_grad()
    def _apply(self, features: Features, function: Any, batch_size: int) -> NDArray[np.float32]:
        self.check_shape(features)
        self.network.eval()
        device = next(self.network.parameters()).device
        row_batches = torch.split(torch.arange(len(features), device=features.device), batch_size)
        parts = [function(features.batch(row_ids).to(device)).float().cpu() for row_ids in row_batches]
        return torch.cat(parts).numpy()

    def save(self, folder: str | Path, *, quantize: bool = False) -> None:
        """Write the model into a new folder atomically; with `quantize`, weights take about 8 bits."""
        from safetensors.torch import save

        config = _network_config(self.network)
        if config is None:
            raise InputError("Only networks of this library can be rebuilt from a file: save the weights of yours.")
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "network", "network": config})
            weights = {name: value.contiguous() for name, value in self.network.state_dict().items()}
            (partial / "weights.safetensors").write_bytes(save(pack(weights) if quantize else weights))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "Model":
        """Read a model that `save` wrote, on any machine."""
        metadata = read_metadata(folder)
        return cls(load_network(folder, device), metadata["space"], metadata["provenance"])


def load_network(folder: str | Path, device: str = "auto") -> nn.Module:
    """Read the network, without its provenance, of a model that `Model.save` wrote."""
    from safetensors.torch import load_file

    target_device = choose_device(device)
    metadata = read_metadata(folder)
    if metadata.get("kind", "network") != "network":
        raise InputError(f"{folder} contains no network: train an encoder, without labels.", parameter="encoder")
    try:
        network = rebuild(metadata["network"])
        network.load_state_dict(unpack(load_file(Path(folder) / "weights.safetensors")))
    except Exception:
        raise not_a_model_error(folder) from None
    return network.to(target_device).eval()


def _network_config(network: nn.Module) -> dict[str, Any] | None:
    try:
        return network.config  # type: ignore[return-value]
    except AttributeError:
        return None
