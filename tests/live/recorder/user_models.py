"""Models of three users, none of which has a stored recording: functions for `python -m fsdplan record --import`."""

import torch
from torch import nn


class Gate(nn.Module):
    """Two branches of different depth that meet: backward does not run in the reversed order of forward."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Sequential(nn.Linear(width, inner), nn.SiLU(), nn.Linear(inner, width, bias=False))
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        y = self.norm(x)
        return x + self.value(y) * torch.sigmoid(self.gate(x))


class GatedMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(24, 40)
        self.blocks = nn.ModuleList(Gate(40, inner) for inner in (56, 72, 30))
        self.shortcut = nn.Linear(24, 40)
        self.head = nn.Linear(40, 9)

    def forward(self, features, *, scale=1.0):
        x = self.inp(features)
        for block in self.blocks:
            x = block(x)
        return self.head(x + scale * self.shortcut(features))


def gated_mlp():
    return GatedMLP(), (torch.randn(6, 24, generator=torch.Generator().manual_seed(1)),), {"scale": 0.5}


class Stage(nn.Module):
    def __init__(self, channels: int, out: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, out)
        self.skip = nn.Conv2d(channels, out, 1, stride=2)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + self.skip(x))


class Pyramid(nn.Module):
    """A small convolution net; the head reads the means of every stage."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.stages = nn.ModuleList([Stage(6, 10), Stage(10, 14), Stage(14, 22)])
        self.head = nn.Linear(10 + 14 + 22, 5)

    def forward(self, image):
        x, means = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            means.append(x.mean((2, 3)))
        return {"scores": self.head(torch.cat(means, 1))}


def pyramid():
    return Pyramid(), lambda: {"image": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(2))}


def small_llama():
    import transformers as T

    config = T.LlamaConfig(vocab_size=203, hidden_size=48, intermediate_size=112, num_hidden_layers=3,
                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
                           tie_word_embeddings=True)
    ids = torch.randint(203, (2, 12), generator=torch.Generator().manual_seed(3))
    return T.LlamaForCausalLM(config), lambda: {"input_ids": ids, "labels": ids}
