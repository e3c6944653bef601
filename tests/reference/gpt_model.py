"""The GPT of the trainer's --task text in plain PyTorch: GPT-2's layers with nanoGPT's names; the output layer is the
token embedding."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PRESETS = {
    "tiny": dict(layers=4, heads=4, width=128, context=64),
    "small": dict(layers=6, heads=6, width=384, context=256),
    "gpt2": dict(layers=12, heads=12, width=768, context=1024),
}
GPT2_VOCABULARY = 50304  # GPT-2's 50,257 tokens, rounded up to a multiple of 64


def parse_shape(text):
    """tiny,context=32 -> dict(layers=4, heads=4, width=128, context=32, dropout=0.0)"""
    shape = dict(PRESETS["tiny"], dropout=0.0)
    for word in text.split(","):
        key, equals, value = word.partition("=")
        shape.update({key: float(value) if key == "dropout" else int(value)} if equals else PRESETS[key])
    return shape


class Attention(nn.Module):
    def __init__(self, heads, width, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        samples, tokens, width = x.shape
        query, key, value = (part.view(samples, tokens, self.heads, width // self.heads).transpose(1, 2)
                             for part in self.c_attn(x).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout if self.training else 0.0,
                                               is_causal=True)
        return F.dropout(self.c_proj(mixed.transpose(1, 2).contiguous().view(samples, tokens, width)), self.dropout,
                         self.training)


class FeedForward(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.dropout = dropout
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x))), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, heads, width, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(heads, width, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width, dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, layers, heads, width, context, dropout):
        super().__init__()
        self.dropout = dropout
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([Block(heads, width, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0,
                                0.02 / (math.sqrt(2.0 * layers) if name.endswith("c_proj.weight") else 1.0))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.wte(tokens) + self.wpe(places), self.dropout, self.training)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def text_windows(path, context, begin=0.0, end=0.9):
    """Inputs and targets, [windows, context]: the bytes of a part of the file, each with the one after it."""
    data = open(path, "rb").read()
    part = bytearray(data[int(begin * len(data)):int(end * len(data))])
    return windows_of(torch.frombuffer(part, dtype=torch.uint8).long(), context)


def token_windows(path, context):
    """The same of a file of tokens of two bytes, as nanoGPT's."""
    return windows_of(torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint16).long(), context)


def windows_of(tokens, context):
    windows = (len(tokens) - 1) // context
    return tokens[:windows * context].view(windows, context), tokens[1:windows * context + 1].view(windows, context)
