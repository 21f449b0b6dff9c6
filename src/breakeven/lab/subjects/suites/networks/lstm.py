"""LSTM of Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.

Written as a loop over time, as custom cells are: Dynamo does not take `torch.nn.LSTM`, and a loop
shows what unrolling costs a compiler (a captured graph holds every step of its length).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LSTMLayer(nn.Module):
    """[batch, length, inner] -> hidden states [batch, length, width]."""

    def __init__(self, inner: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.from_input = nn.Linear(inner, 4 * width)
        self.from_hidden = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.from_input(x)
        hidden = cell = x.new_zeros(x.shape[0], self.width)
        states = []
        for part in projected.unbind(1):
            gates = part + self.from_hidden(hidden)
            enter, forget, value, leave = gates.chunk(4, dim=1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(value)
            hidden = torch.sigmoid(leave) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states, dim=1)


class LSTM(nn.Module):
    """[batch, length, features] -> [batch, length, features]: the next value of each series."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        super().__init__()
        inners = [features] + [width] * (layers - 1)
        self.layers = nn.Sequential(*(LSTMLayer(inner, width) for inner in inners))
        self.head = nn.Linear(width, features)

    def forward(self, x: Tensor) -> Tensor:
        following: Tensor = self.head(self.layers(x))
        return following
