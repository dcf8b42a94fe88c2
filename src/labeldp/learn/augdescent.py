"""Aug-Descent (Nishi et al. 2021) on DivideMix (Li et al. 2020): two networks estimate which labels are correct.

Losses and pseudo-labels are computed on weakly augmented rows, and gradients on strongly augmented ones. In each epoch,
each network estimates for the other one the probability that each label is correct. Labels that are probably correct
are refined. Other labels are replaced by the mean prediction of both networks. All rows are mixed (MixMatch).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import EnsembleNetwork
from labeldp.learn.base import Learner, hard_labels, make_evidence_fn, released_row_ids, soft_cross_entropy
from labeldp.learn.bayes import posterior
from labeldp.learn.coteaching import get_noise_rate
from labeldp.learn.model import Model
from labeldp.learn.supervised import sample_mix_weight
from labeldp.releases.base import Release
from labeldp.releases.derived import PseudoLabels
from labeldp.releases.responses import Responses


@dataclass(frozen=True)
class AugDescent(Learner):
    """Train two networks that estimate for each other which labels are correct.

    Attributes:
        warmup_fraction: The share of epochs in which the released labels are the targets.
        correctness_threshold: The least probability of being correct of a label that is refined instead of replaced.
        temperature: The temperature by which targets are sharpened.
        n_views: The weakly augmented views of which predictions are the mean.
        mixup: The parameter of the Beta distribution of mixing weights.
        unsupervised_weight: The weight of the loss of rows with pseudo-labels.
        ramp_fraction: The share of epochs over which this weight grows from 0.
        balance_weight: The weight of the penalty on mean predictions that differ from the class prior.
    """

    warmup_fraction: float = 0.1
    correctness_threshold: float = 0.5
    temperature: float = 0.5
    n_views: int = 2
    mixup: float = 4.0
    unsupervised_weight: float = 25.0
    ramp_fraction: float = 0.2
    balance_weight: float = 1.0

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train both networks; the model averages them."""
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        pair = nn.ModuleList([self._make_network(features, n_classes, start, offset) for offset in (0, 1)])
        row_ids, labels = released_row_ids(release, device), hard_labels(release, device)
        correctness = _LabelCorrectness(features, release, row_ids, labels)
        correct_probabilities = [torch.ones(len(row_ids), device=device)] * 2
        n_warmup_epochs, is_warmup = max(1, round(self.warmup_fraction * self.training.epochs)), True
        ramp = torch.zeros((), device=device)  # a Python number would be a constant of the compiled loss

        def begin_epoch(epoch: int) -> None:
            nonlocal is_warmup, correct_probabilities
            is_warmup = epoch < n_warmup_epochs
            ramp.fill_(min(1.0, (epoch - n_warmup_epochs + 1) / max(1, self.ramp_fraction * self.training.epochs)))
            if not is_warmup:
                correct_probabilities = [correctness(network) for network in (pair[1], pair[0])]  # from the other one

        def loss(positions: Tensor) -> Tensor:
            batch_ids = row_ids[positions]
            inputs = features.batch(batch_ids)
            one_hot = F.one_hot(labels[batch_ids], n_classes).float()
            if is_warmup:
                strong_inputs = features.strong(inputs)
                return soft_cross_entropy(pair[0](strong_inputs), one_hot) + soft_cross_entropy(
                    pair[1](strong_inputs), one_hot
                )
            weak_views = [features.weak(inputs) for _ in range(self.n_views)]
            with torch.no_grad():
                predictions = [
                    torch.stack([torch.softmax(net(x).float(), 1) for x in weak_views]).mean(0) for net in pair
                ]
            total = torch.zeros((), device=device)
            for network, own_prediction, correct_probability in zip(
                pair, predictions, correct_probabilities, strict=True
            ):
                target, trusted_mask = self._refine_targets(
                    one_hot,
                    own_prediction,
                    (predictions[0] + predictions[1]) / 2,
                    correct_probability[positions],
                    correctness.class_prior,
                )
                total = total + self._mixmatch_loss(
                    network, features.strong(inputs), target, trusted_mask, ramp, correctness.class_prior
                )
            return total

        trained = self._train(pair, release, len(row_ids), loss, start, begin_epoch=begin_epoch)
        return Model.trained_on(EnsembleNetwork(list(trained.children())), release, start)

    def _refine_targets(
        self,
        one_hot: Tensor,
        own_prediction: Tensor,
        mean_prediction: Tensor,
        correct_probability: Tensor,
        class_prior: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return sharpened targets, and a mask of the rows whose label is refined instead of replaced.

        Sharpening raises the probabilities of frequent classes, and training on such targets amplifies this. So the
        mean of the pseudo-labels is rescaled to the class prior.
        """
        trusted_mask = correct_probability >= self.correctness_threshold
        refined = correct_probability[:, None] * one_hot + (1 - correct_probability[:, None]) * own_prediction
        sharpened = sharpen(torch.where(trusted_mask[:, None], refined, mean_prediction), self.temperature)
        pseudo_label_mean = (sharpened * ~trusted_mask[:, None]).sum(0) / (~trusted_mask).sum().clamp_min(1)
        balanced = sharpened * (class_prior / pseudo_label_mean.clamp_min(1e-6))
        return torch.where(trusted_mask[:, None], sharpened, balanced / balanced.sum(dim=1, keepdim=True)), trusted_mask

    def _mixmatch_loss(
        self,
        network: nn.Module,
        inputs: Tensor,
        target: Tensor,
        trusted_mask: Tensor,
        ramp: Tensor,
        class_prior: Tensor,
    ) -> Tensor:
        """Return the MixMatch loss: cross-entropy for trusted labels, squared error for pseudo-labels, and balance.

        Every row has the same weight, so that few pseudo-labels do not outweigh many labels.
        """
        mix_weight = sample_mix_weight(self.mixup, inputs.device)
        mix_weight = torch.maximum(mix_weight, 1 - mix_weight)
        permutation = torch.rand(len(inputs), device=inputs.device).argsort()  # torch fails to compile rows by randperm
        logits = network(mix_weight * inputs + (1 - mix_weight) * inputs[permutation]).float()
        mixed_target = mix_weight * target + (1 - mix_weight) * target[permutation]
        log_probability = F.log_softmax(logits, dim=1)
        labeled_loss = (-(mixed_target * log_probability).sum(1) * trusted_mask).sum() / trusted_mask.sum().clamp_min(1)
        squared_error = ((log_probability.exp() - mixed_target) ** 2).mean(1)
        unlabeled_loss = (squared_error * ~trusted_mask).sum() / len(trusted_mask)
        mean_probability = log_probability.exp().mean(0)
        balance_penalty = (class_prior * (class_prior / mean_probability.clamp_min(1e-9)).log()).sum()
        return labeled_loss + self.unsupervised_weight * ramp * unlabeled_loss + self.balance_weight * balance_penalty


class _LabelCorrectness:
    """The probability that each released label is correct, given the predictions of one network.

    - Symmetric channel: the expected share of correct labels is known. A mixture of two Gaussians with this share is
      fitted to the losses. Such a mixture takes rows with a large loss for wrong, above all those of rare classes. So
      the log-odds of each released class are shifted to its expected share of correct labels, which follows from the
      channel and from the released frequencies.
    - Pseudo-labels: the share of correct labels is unknown and is a parameter of the mixture.
    - Other releases: the probability follows from the evidence and the network by Bayes' rule.
    """

    def __init__(self, features: Features, release: Release, row_ids: Tensor, labels: Tensor) -> None:
        is_pseudo_labeled = isinstance(release, PseudoLabels)
        if release.kind != "likelihood" and not is_pseudo_labeled:
            raise InputError(
                f"{release.mechanism} gives a prior, not noisy labels: relabel rows by it and use FixMatch."
            )
        self._features, self._row_ids, self._labels = features, row_ids, labels
        self._evidence = make_evidence_fn(release, features.device)
        is_symmetric = isinstance(release, Responses) and release.candidates is None
        self._by_loss = is_symmetric or is_pseudo_labeled
        self._clean_fraction = 1 - get_noise_rate(release) if is_symmetric else None
        n_classes = len(release.space)
        self.class_prior, self._clean_fractions_by_class = (
            torch.full((n_classes,), 1 / n_classes, device=features.device),
            list[float](),
        )
        if is_symmetric:
            self.class_prior, self._clean_fractions_by_class = estimate_class_prior(
                release.noise_matrix(), labels[row_ids]
            )
        elif is_pseudo_labeled:  # they are mostly right
            self.class_prior, _ = estimate_class_prior(np.eye(n_classes), labels[row_ids])

    def __call__(self, network: nn.Module) -> Tensor:
        parts = []
        for batch_ids in torch.split(self._row_ids, 2048):
            logits, released_labels = network(self._features.batch(batch_ids)).float(), self._labels[batch_ids]
            if self._by_loss:
                parts.append(F.cross_entropy(logits, released_labels, reduction="none"))
            else:
                parts.append(posterior(logits, self._evidence(batch_ids)).gather(1, released_labels[:, None])[:, 0])
        values = torch.cat(parts)
        if not self._by_loss:
            return values
        log_odds, released_labels = fit_loss_mixture(values, self._clean_fraction), self._labels[self._row_ids]
        for code, clean_fraction in enumerate(self._clean_fractions_by_class):
            if (released_labels == code).any():
                log_odds[released_labels == code] = shift_log_odds(log_odds[released_labels == code], clean_fraction)
        return torch.sigmoid(log_odds)


def fit_loss_mixture(losses: Tensor, clean_fraction: float | None, n_rounds: int = 30) -> Tensor:
    """Return the log-odds for each loss of belonging to the Gaussian with the lower mean.

    Args:
        losses: The loss of each row.
        clean_fraction: The mixture weight of that Gaussian; None to estimate it.
        n_rounds: The rounds of expectation maximization.

    Returns:
        The log-odds of each row.
    """
    x = (losses - losses.min()) / (losses.max() - losses.min()).clamp_min(1e-9)
    initial_fraction = 0.5 if clean_fraction is None else clean_fraction
    low, high = x.quantile(initial_fraction / 2) if len(x) < 1 << 24 else x.min(), x.mean()
    mean = torch.stack([low, torch.maximum(high, low + 1e-3)])
    variance = x.var().clamp_min(1e-6).repeat(2)
    log_fractions = torch.tensor([initial_fraction, 1 - initial_fraction], device=x.device).log()
    for _ in range(n_rounds):
        log_density = log_fractions - 0.5 * variance.log() - (x[:, None] - mean) ** 2 / (2 * variance)
        responsibilities = torch.softmax(log_density, dim=1)
        weight = responsibilities.sum(0).clamp_min(1e-9)
        mean = (responsibilities * x[:, None]).sum(0) / weight
        variance = ((responsibilities * (x[:, None] - mean) ** 2).sum(0) / weight).clamp_min(1e-4)
        if clean_fraction is None:
            log_fractions = (weight / weight.sum()).log()
    lower = int(mean.argmin())
    return log_density[:, lower] - log_density[:, 1 - lower]


def shift_log_odds(log_odds: Tensor, clean_fraction: float) -> Tensor:
    """Add a constant to all log-odds such that this share of them is positive or zero."""
    return log_odds - log_odds.sort().values[round((1 - clean_fraction) * (len(log_odds) - 1))]


def estimate_class_prior(channel: NDArray[np.float64], released_labels: Tensor) -> tuple[Tensor, list[float]]:
    """Estimate the frequency of each true class, and the share of correct labels among those released as each class.

    The channel P(released | true) maps true class frequencies to released ones, and its inverse estimates the former.
    Noise can make an estimate negative, so it is at least a tenth of the uniform frequency.

    Args:
        channel: P(released class = row | true class = column).
        released_labels: The code of each released label.

    Returns:
        The class prior, and the expected share of correct labels by released class.
    """
    released_frequencies = np.bincount(released_labels.cpu().numpy(), minlength=len(channel)) / max(
        1, len(released_labels)
    )
    true_frequencies = np.maximum(np.linalg.solve(channel, released_frequencies), 0.1 / len(channel))
    true_frequencies /= true_frequencies.sum()
    correct_rates = channel.diagonal() * true_frequencies / np.maximum(released_frequencies, 1e-12)
    return torch.tensor(true_frequencies, dtype=torch.float32, device=released_labels.device), np.clip(
        correct_rates, 0.01, 0.999
    ).tolist()


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Raise probabilities to the power 1 / temperature and normalize them."""
    powers = probabilities.clamp_min(1e-9) ** (1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)
