"""Small models for what an export must follow in a step: each function returns (model, sample)."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def batch(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    def __init__(self, width=16, dropout=0.0):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(width, 40), nn.Linear(40, width), nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Stack(nn.Module):
    def __init__(self, run=lambda block, x: block(x), dropout=0.0):
        super().__init__()
        self.blocks, self.run = nn.ModuleList(Block(dropout=dropout) for _ in range(3)), run

    def forward(self, x):
        x = x + 1.0
        for block in self.blocks:
            x = self.run(block, x)
        return x


def plain():
    return Stack(), batch(4, 16)


def dropout():
    return Stack(dropout=0.1), batch(4, 16)


def checkpointed():
    return Stack(lambda block, x: checkpoint(block, x, use_reentrant=False)), batch(4, 16)


def checkpointed_reentrant():
    return Stack(lambda block, x: checkpoint(block, x, use_reentrant=True)), batch(4, 16).requires_grad_()


def checkpointed_dropout():
    return Stack(lambda block, x: checkpoint(block, x, use_reentrant=False), dropout=0.1), batch(4, 16)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        y = x * s
        ctx.save_for_backward(x, s, y)
        ctx.twice = 2 * x
        return y

    @staticmethod
    def backward(ctx, g):
        x, s, y = ctx.saved_tensors
        return g * (s + y * (1 - s)) + 0 * ctx.twice


class Custom(Stack):
    def forward(self, x):
        return Swish.apply(super().forward(Swish.apply(x + 0.0)))


def custom_function():
    return Custom(), batch(4, 16)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        y = self.a(x)
        z = torch.zeros(4, 32)
        z[:, :16] = y
        z[:, 16:] = F.relu_(self.b(y))
        z[:, 3:5].mul_(2)
        return z


def in_place():
    return InPlace(), batch(4, 16)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return {"y": self.out(y.transpose(1, 2).flatten(2)), "aux": q.sum()}


def attention():
    return Attention(), {"x": batch(2, 8, 32)}


class TwoHeads(nn.Module):
    """One output of two reaches the loss."""

    def __init__(self):
        super().__init__()
        self.body, self.a, self.b = Block(), nn.Linear(16, 8), nn.Linear(16, 8)
        self.table = torch.arange(16.0)  # neither a parameter nor a buffer

    def forward(self, x, y):
        x = self.body(x * self.table) + self.table[None]
        hidden = torch.tanh(self.b(x)).exp()
        return type("Output", (), {"logits": self.a(x * y), "unused": hidden})()


def two_heads():
    return TwoHeads(), ((batch(4, 16), batch(4, 16)), {})


def convolution():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(128, 10)), batch(2, 3, 8, 8)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(16, 24, 2), nn.Linear(24, 4)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def recurrent():
    return Recurrent(), batch(5, 4, 16)


class Autocast(Stack):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(super().forward(x))


def autocast():
    return Autocast(), batch(4, 16)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(30, 16), Block(), nn.Linear(16, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids)))


def tied():
    return Tied(), torch.arange(20).view(2, 10)


class OnView(nn.Module):
    """A bias that is read through a view, a gradient that is a view, and a sum of several uses."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(16, 16))

    def forward(self, x):
        a, b = (x @ self.w.t()).chunk(2, -1)
        return torch.cat([a * b, a + b, a - b, b.expand(2, 4, 8)[0]], -1) + self.w[0].repeat(2)


def views():
    return OnView(), batch(4, 16)


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), batch(2, 6, 16)
