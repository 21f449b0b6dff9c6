"""What the built-in subjects compute, against definitions, torch's own modules and the papers."""

import copy

import pytest
import torch
import torch.nn.functional as F

from breakeven.lab.subjects.suites import fusion, models
from breakeven.lab.subjects.suites.adam import AdamStep
from breakeven.lab.subjects.suites.networks.convnext import ConvNeXt
from breakeven.lab.subjects.suites.networks.lstm import LSTMLayer
from breakeven.lab.subjects.suites.networks.mobilenet import MobileNetV2
from breakeven.lab.subjects.suites.networks.resnet import ResNet18
from breakeven.lab.subjects.suites.networks.unet import UNet


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (ResNet18, 11_689_512),
        (MobileNetV2, 3_504_872),
        (lambda: ConvNeXt((3, 3, 9, 3), (96, 192, 384, 768)), 28_589_128),
    ],
    ids=["resnet18", "mobilenet-v2", "convnext-t"],
)
def test_networks_have_as_many_parameters_as_published(build, count):
    with torch.device("meta"):
        assert parameters(build()) == count


def test_lstm_is_torchs_lstm():
    torch.manual_seed(0)
    layer, reference = LSTMLayer(5, 7), torch.nn.LSTM(5, 7, batch_first=True)
    with torch.no_grad():
        layer.from_input.weight.copy_(reference.weight_ih_l0)
        layer.from_input.bias.copy_(reference.bias_ih_l0 + reference.bias_hh_l0)
        layer.from_hidden.weight.copy_(reference.weight_hh_l0)
        x = torch.randn(3, 11, 5)
        torch.testing.assert_close(layer(x), reference(x)[0])


@pytest.mark.parametrize("shape", [(16, 16), (17, 31), (16, 45), (40, 33)])
def test_unet_keeps_any_height_and_width(shape):
    net = UNet(width=4, depth=4, classes=3).eval()
    assert net(torch.randn(1, 3, *shape)).shape == (1, 3, *shape)


@pytest.mark.parametrize("microbatches", [1, 3])
def test_adam_step_is_torchs_adam(microbatches):
    torch.manual_seed(0)
    shapes = [(4, 3), (3,), (2, 2, 2)]
    mine = AdamStep(shapes).double()
    theirs = [mine.get_buffer(f"parameter_{i}").clone().requires_grad_() for i in range(3)]
    optimizer = torch.optim.Adam(theirs, lr=mine.lr, betas=mine.betas, eps=mine.eps)
    for i, parameter in enumerate(theirs):
        optimizer.state[parameter] = {
            "step": torch.tensor(0.0),
            "exp_avg": mine.get_buffer(f"first_{i}").clone(),
            "exp_avg_sq": mine.get_buffer(f"second_{i}").clone(),
        }
    for _ in range(4):
        gradients = [torch.randn(microbatches, *s, dtype=torch.float64) for s in shapes]
        before = [parameter.detach().clone() for parameter in theirs]
        sizes = mine(*gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.mean(0)
        optimizer.step()
        for i, parameter in enumerate(theirs):
            torch.testing.assert_close(mine.get_buffer(f"parameter_{i}"), parameter.detach())
            moved = (parameter.detach() - before[i]).square().mean().sqrt()
            torch.testing.assert_close(sizes[i], moved, rtol=1e-6, atol=0.0)


def test_adam_step_restored_from_its_state_repeats_itself():
    subject = fusion.SUBJECTS["adam-step"]("small")
    model, saved = subject.model, copy.deepcopy(subject.model.state_dict())
    gradients = subject.inputs({}, 1).args
    first = model(*gradients)
    moved = copy.deepcopy(model.state_dict())
    assert not torch.equal(model(*gradients), first)
    model.load_state_dict(saved)
    assert torch.equal(model(*gradients), first)
    assert all(torch.equal(value, moved[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adam_step_is_finite_from_the_first_step_on(dtype):
    model = fusion.SUBJECTS["adam-step"]("small").model.to(dtype)
    assert int(model.step) == 0
    for seed in range(3):
        gradients = fusion.SUBJECTS["adam-step"]("small").inputs({}, seed).args
        sizes = model(*(gradient.to(dtype) for gradient in gradients))
        assert bool(sizes.isfinite().all()) and float(sizes.max()) < 1e-2


def test_chain_is_the_one_of_the_record():
    subject = fusion.SUBJECTS["chain"]("medium")
    assert subject.default_size == {"rows": 512, "width": 1024}
    x, w, b = subject.inputs({"rows": 3, "width": 9}, 0).args
    y = F.gelu(x * w + b)
    y = torch.tanh(y) * torch.sigmoid(x)
    y = y + torch.relu(x)
    y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, keepdim=True, correction=0) + 1e-5)
    torch.testing.assert_close(subject.model(x, w, b), y * torch.exp(-x.abs()))


def test_mlp_small_is_the_one_of_the_record():
    subject = models.SUBJECTS["mlp"]("small")
    assert subject.inputs({}, 0).args[0].shape == (8, 64)
    assert [tuple(p.shape) for p in subject.model.parameters()] == [
        *((256, 64), (256,), (64, 256), (64,))
    ]


def test_rotary_keeps_lengths_and_sees_relative_positions_only():
    subject = fusion.SUBJECTS["rotary"]("small")
    q, k, cos, sin = subject.inputs({"batch": 1, "length": 12}, 0).args
    q = q[:, :, :1].expand(q.shape).double()
    k = k[:, :, :1].expand(k.shape).double()
    turned_q, turned_k = subject.model(q, k, cos.double(), sin.double())
    torch.testing.assert_close(turned_q.norm(dim=-1), q.norm(dim=-1), rtol=1e-6, atol=1e-6)
    scores = turned_q @ turned_k.transpose(-2, -1)
    for offset in range(-11, 12):
        diagonal = scores.diagonal(offset, -2, -1)
        torch.testing.assert_close(
            diagonal, diagonal[..., :1].expand(diagonal.shape), atol=1e-4, rtol=1e-4
        )
    assert not torch.allclose(scores[..., 0, 0], scores[..., 0, 5])


def test_masked_softmax_sums_to_one_over_what_is_kept():
    subject = fusion.SUBJECTS["masked-softmax"]("small")
    for seed in range(5):
        scores, keep = subject.inputs({}, seed).args
        probabilities = subject.model(scores, keep)
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(scores.shape[:-1]))
        assert bool((probabilities[~keep.expand(scores.shape)] == 0).all())
        assert 0.5 < float(keep.float().mean()) < 1.0


def test_image_normalize_is_planar_and_right():
    subject = fusion.SUBJECTS["image-normalize"]("small")
    (image,) = subject.inputs({"batch": 1, "height": 5, "width": 7}, 0).args
    out = subject.model(image)
    assert image.dtype is torch.uint8 and out.is_contiguous() and out.shape == (1, 3, 5, 7)
    value = (int(image[0, 4, 6, 2]) / 255 - 0.406) / 0.225
    assert float(out[0, 2, 4, 6]) == pytest.approx(value, rel=1e-5)


def test_losses_are_their_definitions():
    logits, labels = fusion.SUBJECTS["cross-entropy"]("small").inputs({}, 0).args
    picked = logits.double().log_softmax(-1).gather(1, labels[:, None])
    loss = fusion.SUBJECTS["cross-entropy"]("small").model(logits, labels)
    assert float(loss) == pytest.approx(-float(picked.mean()), rel=1e-6)
    prediction, target = fusion.SUBJECTS["huber-loss"]("small").inputs({}, 0).args
    error = (prediction.double() - target.double()).abs()
    huber = torch.where(error < 1, 0.5 * error**2, error - 0.5).mean()
    loss = fusion.SUBJECTS["huber-loss"]("small").model(prediction, target)
    assert float(loss) == pytest.approx(float(huber), rel=1e-6)
    assert bool((error > 1).any()) and bool((error < 1).any())  # both branches are taken


def test_no_weight_is_neutral():
    """A gain of one or a bias of zero would let a compiler drop what no trained network lacks."""
    for suite in (fusion.SUBJECTS, models.SUBJECTS):
        for name, factory in suite.items():
            model = factory("small").model
            if not isinstance(model, torch.nn.Module) or name == "adam-step":
                continue
            for key, value in model.state_dict().items():
                if value.is_floating_point() and value.numel() > 1:
                    neutral = (value == 0) | (value == 1)
                    assert float(neutral.double().mean()) < 0.1, (name, key)
