"""The model of tests/planner/code_test.cpp, for the code that is written for it."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Block(GradientCheckpointingLayer):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), MLP()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(32, 8), nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(8, 32, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs):
        """The switch of transformers' models."""
        for layer in self.layers:
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = lambda f, *args: checkpoint(f, *args, **gradient_checkpointing_kwargs)
