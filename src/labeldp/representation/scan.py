"""SCAN (Van Gansbeke et al. 2020): cluster so that neighbours agree, then let confident rows teach the others."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from labeldp.accounting.lineage import Provenance
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.base import place, start_network
from labeldp.learn.fixmatch import confident
from labeldp.learn.loop import train
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.representation.clusters import neighbours


@dataclass(frozen=True)
class SCAN:
    """A network whose classes are clusters. It starts from an encoder and rests on no labels but the encoder's."""

    clusters: int
    near: int = 20  # neighbours of each row, mined once from the encoder
    entropy: float = 5.0  # weight of the term that keeps all clusters in use
    threshold: float = 0.99  # how sure a row must be to teach, in self-labelling
    training: Training = field(default_factory=lambda: Training(optimizer="adamw", rate=1e-3, decay=1e-4))
    self_label_epochs: int = 20

    def fit(self, features: Features, encoder: Model) -> Model:
        """Cluster, then self-label."""
        features = place(features, self.training)
        embeddings = encoder.embed(features)
        nearest = torch.from_numpy(neighbours(embeddings, self.near, str(features.device))).to(features.device)
        torch.manual_seed(self.training.seed)
        network = start_network(encoder, self.clusters, features)

        def agree(rows: Tensor) -> Tensor:
            friends = nearest[rows, torch.randint(self.near, (len(rows),), device=rows.device)]
            inputs = torch.cat([features.weak(features.batch(rows)), features.weak(features.batch(friends))])
            own, other = network(inputs).float().chunk(2)
            return scan_loss(own, other, self.entropy)

        network = train(network, len(features), agree, self.training)
        if self.self_label_epochs:
            network.requires_grad_(True)

            def teach(rows: Tensor) -> Tensor:
                batch = features.batch(rows)
                # Guesses come from the network as it predicts, not from the statistics of strongly varied batches.
                network.eval()
                with torch.no_grad():
                    weak = network(features.weak(batch)).float()
                network.train()
                both = torch.cat([features.weak(batch), features.strong(batch)])
                return self_label_loss(weak.repeat(2, 1), network(both).float(), self.threshold)

            # A tenth of the rate: guesses that change fast follow each other into one cluster.
            gentle = self.training.rate / 10
            schedule = replace(self.training, epochs=self.self_label_epochs, rate=gentle, checkpoint=None)
            network = train(network, len(features), teach, schedule)
        return Model(network, LabelSpace(list(range(self.clusters))), Provenance.of(encoder))

    @staticmethod
    def assign(model: Model, features: Features) -> NDArray[np.int64]:
        """Return the cluster of each row."""
        return model.predict_proba(features).argmax(axis=1)


def scan_loss(logits: Tensor, friends: Tensor, entropy: float) -> Tensor:
    """-log of the chance that a row and its neighbour share a cluster, minus the entropy of the average assignment."""
    p, q = torch.softmax(logits, dim=1), torch.softmax(friends, dim=1)
    together = -(p * q).sum(dim=1).clamp_min(1e-9).log().mean()
    mean = p.mean(dim=0).clamp_min(1e-9)
    return together + entropy * (mean * mean.log()).sum()


def self_label_loss(weak: Tensor, strong: Tensor, threshold: float) -> Tensor:
    """Cross-entropy of strongly varied rows with confident guesses, every cluster weighing the same."""
    guess, sure = confident(weak, threshold)
    count = torch.zeros_like(weak[0]).scatter_add(0, guess, sure.to(weak.dtype)).clamp_min(1)
    weight = sure / count[guess]
    return (F.cross_entropy(strong, guess, reduction="none") * weight).sum() / weight.sum().clamp_min(1e-9)
