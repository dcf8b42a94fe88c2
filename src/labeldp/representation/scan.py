"""SCAN (Van Gansbeke et al. 2020): clusters on which neighbors agree, refined by self-training on confident rows."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from labeldp.accounting.lineage import Provenance
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.base import to_device, warm_start_network
from labeldp.learn.fixmatch import predict_confident
from labeldp.learn.loop import train_network
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.representation.clusters import nearest_neighbors


@dataclass(frozen=True)
class SCAN:
    """Trains a network whose classes are clusters, from an encoder. It has the provenance of the encoder.

    Attributes:
        n_clusters: The number of clusters.
        n_neighbors: The neighbors of each row, computed once from the encoder's embeddings.
        entropy_weight: The weight of the entropy of the mean assignment, which prevents empty clusters.
        threshold: The least probability of a pseudo-label in self-training.
        training: The optimizer and its schedule.
        self_label_epochs: The epochs of self-training.
    """

    n_clusters: int
    n_neighbors: int = 20
    entropy_weight: float = 5.0
    threshold: float = 0.99
    training: Training = field(
        default_factory=lambda: Training(optimizer="adamw", learning_rate=1e-3, weight_decay=1e-4)
    )
    self_label_epochs: int = 20

    def fit(self, features: Features, encoder: Model) -> Model:
        """Train by the agreement of neighbors, and then by self-training."""
        features = to_device(features, self.training)
        embeddings = encoder.embed(features)
        nearest = torch.from_numpy(nearest_neighbors(embeddings, self.n_neighbors, str(features.device))).to(
            features.device
        )
        torch.manual_seed(self.training.seed)
        network = warm_start_network(encoder, self.n_clusters, features)

        def agreement_loss(row_ids: Tensor) -> Tensor:
            neighbor_ids = nearest[row_ids, torch.randint(self.n_neighbors, (len(row_ids),), device=row_ids.device)]
            inputs = torch.cat([features.weak(features.batch(row_ids)), features.weak(features.batch(neighbor_ids))])
            own, other = network(inputs).float().chunk(2)
            return scan_loss(own, other, self.entropy_weight)

        network = train_network(network, len(features), agreement_loss, self.training)
        if self.self_label_epochs:
            network.requires_grad_(True)

            def self_training_loss(row_ids: Tensor) -> Tensor:
                batch = features.batch(row_ids)
                # Pseudo-labels come from evaluation mode, not from statistics of strongly augmented batches.
                network.eval()
                with torch.no_grad():
                    weak_logits = network(features.weak(batch)).float()
                network.train()
                inputs = torch.cat([features.weak(batch), features.strong(batch)])
                return self_label_loss(weak_logits.repeat(2, 1), network(inputs).float(), self.threshold)

            # A tenth of the rate: pseudo-labels that change fast collapse to one cluster.
            lower_rate = self.training.learning_rate / 10
            schedule = replace(self.training, epochs=self.self_label_epochs, learning_rate=lower_rate, checkpoint=None)
            network = train_network(network, len(features), self_training_loss, schedule)
        return Model(network, LabelSpace(list(range(self.n_clusters))), Provenance.of(encoder))

    @staticmethod
    def assign(model: Model, features: Features) -> NDArray[np.int64]:
        """Return the cluster of each row."""
        return model.predict_proba(features).argmax(axis=1)


def scan_loss(logits: Tensor, neighbor_logits: Tensor, entropy_weight: float) -> Tensor:
    """Return -log P(a row and its neighbor share a cluster), minus the weighted entropy of the mean assignment."""
    p, q = torch.softmax(logits, dim=1), torch.softmax(neighbor_logits, dim=1)
    agreement = -(p * q).sum(dim=1).clamp_min(1e-9).log().mean()
    mean = p.mean(dim=0).clamp_min(1e-9)
    return agreement + entropy_weight * (mean * mean.log()).sum()


def self_label_loss(weak_logits: Tensor, strong_logits: Tensor, threshold: float) -> Tensor:
    """Return the cross-entropy of strongly augmented rows with confident pseudo-labels, with equal cluster weights."""
    pseudo_labels, is_confident = predict_confident(weak_logits, threshold)
    counts = (
        torch.zeros_like(weak_logits[0]).scatter_add(0, pseudo_labels, is_confident.to(weak_logits.dtype)).clamp_min(1)
    )
    weight = is_confident / counts[pseudo_labels]
    return (F.cross_entropy(strong_logits, pseudo_labels, reduction="none") * weight).sum() / weight.sum().clamp_min(
        1e-9
    )
